import torch, json, sys, statistics
torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction=False
shapes=json.load(open(sys.argv[1])); out=open(sys.argv[2],'w')
dev='cuda'
def bench(fn, n, flops):
    batch=max(2,min(64,int(1e-3/(flops/600e12+4e-6))))
    scratch=torch.empty(256<<20,dtype=torch.float32,device=dev)
    ts=[]
    for s in range(n+2):
        scratch.fill_(s)
        a=torch.cuda.Event(enable_timing=True); b=torch.cuda.Event(enable_timing=True)
        a.record()
        for i in range(batch): fn(i)
        b.record(); b.synchronize(); ts.append(a.elapsed_time(b)*1e3/batch)
    return statistics.median(ts[2:])
for rows,i,o in shapes:
    for op in ['fprop','dgrad','wgrad']:
        n=max(1,min(64,(160<<20)//(2*(rows*i+i*o+rows*o))))
        X=[torch.randn(rows,i,device=dev,dtype=torch.bfloat16) for _ in range(n)]
        W=[torch.randn(o,i,device=dev,dtype=torch.bfloat16) for _ in range(n)]
        Y=[torch.randn(rows,o,device=dev,dtype=torch.bfloat16) for _ in range(n)]
        if op=='fprop': fn=lambda k: torch.mm(X[k%n],W[k%n].t(),out=Y[k%n])
        elif op=='dgrad': fn=lambda k: torch.mm(Y[k%n],W[k%n],out=X[k%n])
        else: fn=lambda k: torch.mm(Y[k%n].t(),X[k%n],out=W[k%n])
        fl=2*rows*i*o
        us=bench(fn,15,fl)
        out.write(json.dumps(dict(op=op,rows=rows,inputs=i,outputs=o,us=us,tflops=fl/us/1e6))+'\n')
