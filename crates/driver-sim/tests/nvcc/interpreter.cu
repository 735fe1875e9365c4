// A small stack machine: a jump table, and a stack in local memory.
extern "C" __global__ void interpreter(const int *code, int length, const int *input, int *output)
{
    int stack[16], top = 0;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int at = 0; at < length; ++at) {
        int word = code[at];
        switch (word & 15) {
        case 0: stack[top++] = word >> 4; break;
        case 1: stack[top++] = input[i]; break;
        case 2: --top; stack[top - 1] += stack[top]; break;
        case 3: --top; stack[top - 1] -= stack[top]; break;
        case 4: --top; stack[top - 1] *= stack[top]; break;
        case 5: --top; stack[top - 1] /= stack[top]; break;
        case 6: --top; stack[top - 1] = stack[top - 1] < stack[top]; break;
        case 7: stack[top] = stack[top - 1]; ++top; break;
        case 8: stack[top - 1] = -stack[top - 1]; break;
        case 9: { int t = stack[top - 1]; stack[top - 1] = stack[top - 2]; stack[top - 2] = t; break; }
        case 10: --top; if (stack[top] != 0) at += word >> 4; break;
        default: stack[top - 1] ^= word; break;
        }
    }
    output[i] = stack[top - 1];
}
