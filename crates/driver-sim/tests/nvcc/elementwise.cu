// Functions of the mathematical library in single and double precision.
extern "C" __global__ void elementwise(const float *x, float *y, double *z, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float v = x[i];
    y[6 * i] = sinf(v) * cosf(v);
    y[6 * i + 1] = powf(fabsf(v), 1.3f);
    y[6 * i + 2] = logf(1.0f + v * v) + log1pf(fabsf(v));
    y[6 * i + 3] = erff(v) + cbrtf(v);
    y[6 * i + 4] = fmodf(v, 0.7f) + truncf(v) + rintf(v);
    y[6 * i + 5] = sqrtf(fabsf(v)) / (1.0f + fabsf(v)) + atan2f(v, 2.0f);
    double w = v;
    z[3 * i] = exp(-w * w) + sin(w);
    z[3 * i + 1] = sqrt(fabs(w)) / (2.0 + w * w) + log(1.0 + w * w);
    z[3 * i + 2] = pow(fabs(w) + 0.1, 2.5) + floor(w) + atan(w);
}
