// Where the time goes when compiled images are loaded by plain driver calls in a fresh process.
//   gcc -O2 warm_costs.c -o warm_costs -lcuda && warm_costs ORDER FILE...
// FILE: a cubin with, beside it, FILE.entries (one entry point a line).
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
static double now(void){struct timespec t;clock_gettime(CLOCK_MONOTONIC,&t);return t.tv_sec*1e6+t.tv_nsec*1e-3;}
#define CK(x) do{CUresult r=(x);if(r){fprintf(stderr,"%s %d\n",#x,r);exit(1);}}while(0)
int main(int argc,char**argv){
  CK(cuInit(0)); CUdevice d; CK(cuDeviceGet(&d,0)); CUcontext c; CK(cuDevicePrimaryCtxRetain(&c,d)); CK(cuCtxSetCurrent(c));
  int library=!strcmp(argv[1],"library"), plain=!strcmp(argv[1],"plain");
  double read=0,load=0,get=0,attr=0,params=0,set=0; int entries=0; double first=0; char big[4096]="";
  double total0=now();
  for(int i=2;i<argc;i++){
    double t=now(); FILE*f=fopen(argv[i],"rb"); fseek(f,0,SEEK_END); long n=ftell(f); rewind(f); char*b=malloc(n+1); if(fread(b,1,n,f)!=(size_t)n)return 2; fclose(f); double t1=now(); read+=t1-t;
    CUmodule m=0; CUlibrary l=0;
    if(library) CK(cuLibraryLoadData(&l,b,0,0,0,0,0,0));
    else if(plain) CK(cuModuleLoadData(&m,b));
    else { char log[8192]; char err[8192]; CUjit_option o[]={CU_JIT_INFO_LOG_BUFFER,CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,CU_JIT_ERROR_LOG_BUFFER,CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES}; void*v[]={log,(void*)8192,err,(void*)8192}; CK(cuModuleLoadDataEx(&m,b,4,o,v)); }
    double t2=now(); load+=t2-t1; if(i==2) first=t2-t1; if(n>100000){char s[100];snprintf(s,100,"%.0f ",t2-t1);strcat(big,s);}
    char name[4096]; snprintf(name,sizeof name,"%s.entries",argv[i]); FILE*e=fopen(name,"r"); char line[256];
    while(fgets(line,256,e)){ line[strcspn(line,"\n")]=0; CUfunction fn; double a=now();
      if(library){CUkernel k; CK(cuLibraryGetKernel(&k,l,line)); CK(cuKernelGetFunction(&fn,k));} else CK(cuModuleGetFunction(&fn,m,line));
      double a1=now(); get+=a1-a; size_t o,s; for(int p=0;;p++){ if(cuFuncGetParamInfo(fn,p,&o,&s)) break; } double a2=now(); params+=a2-a1; int v;
      CUfunction_attribute A[]={CU_FUNC_ATTRIBUTE_NUM_REGS,CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES,CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES,CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK};
      for(int k=0;k<4;k++) CK(cuFuncGetAttribute(&v,A[k],fn)); double a3=now(); attr+=a3-a2;
      {int sh;cuFuncGetAttribute(&sh,CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES,fn);CK(cuFuncSetAttribute(fn,CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,232448-sh));} double a4=now(); set+=a4-a3; entries++; }
    fclose(e);
  }
  printf("{\"how\":\"%s\",\"total\":%.0f,\"read\":%.0f,\"load\":%.0f,\"first\":%.0f,\"big\":\"%s\",\"get\":%.0f,\"params\":%.0f,\"attr\":%.0f,\"set\":%.0f,\"entries\":%d}\n",argv[1],now()-total0,read,load,first,big,get,params,attr,set,entries);
}
