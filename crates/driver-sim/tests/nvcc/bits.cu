// Tricks with bits: counts, searches, permutations, fields, products of 64 bits, packed bytes.
extern "C" __global__ void bits(const unsigned *x, unsigned long long *y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    unsigned a = x[i], b = x[(i + 1) % n];
    unsigned long long wide = (unsigned long long)a << 32 | b;
    unsigned long long hash = __popc(a) + 37ull * __clz(b) + 1369ull * __ffs(a);
    hash ^= (unsigned long long)__brev(a) << 7;
    hash += __byte_perm(a, b, 0x5140);
    hash ^= __funnelshift_l(a, b, a & 31);
    hash += __umul64hi(wide, 0x9e3779b97f4a7c15ull);
    hash ^= __brevll(wide) + __popcll(wide) + __clzll(wide);
    hash += __vadd4(a, b);
    hash ^= (unsigned long long)__dp4a(a, b, 5u) << 20;
    hash += __usad(a, b, 3u) + __umulhi(a, b) + __mul24((int)a, (int)b) + __uhadd(a, b);
    hash ^= (unsigned long long)((long long)(int)a * (int)b) + (wide % 1000003ull);
    hash += (unsigned)((int)a >> (b & 31)) + a / (b | 1) + (unsigned)((int)a % (int)(b | 1));
    unsigned __int128 product = (unsigned __int128)wide * (wide ^ hash) + hash;
    y[i] = (unsigned long long)(product >> 64) ^ (unsigned long long)product;
}
