// What a step costs without any wrapper: the graph of a program, built again by plain driver calls,
// and launched behind a copy from pinned memory. A shared library, so that it works on the same
// functions and the same memory as the program that it is compared with.
//
//     gcc -O2 -shared -fPIC raw_step.c -o libraw_step.so -lcuda
//
// Every function returns the first code that is not 0.
#include <cuda.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TRY(call) do { CUresult code = (call); if (code) return (int)code; } while (0)

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static size_t position(const CUgraphNode* nodes, size_t count, CUgraphNode node) {
    for (size_t at = 0; at < count; at++)
        if (nodes[at] == node) return at;
    return count;
}

// Longest path in nodes from each node to an end, by passing over the edges until nothing changes.
static void heights(size_t count, size_t edges, const size_t* from, const size_t* to, int* height) {
    for (size_t at = 0; at < count; at++) height[at] = 1;
    for (int changed = 1; changed;) {
        changed = 0;
        for (size_t at = edges; at-- > 0;)
            if (height[from[at]] < height[to[at]] + 1) {
                height[from[at]] = height[to[at]] + 1;
                changed = 1;
            }
    }
}

static void depths(size_t count, size_t edges, const size_t* from, const size_t* to, int* depth) {
    for (size_t at = 0; at < count; at++) depth[at] = 1;
    for (int changed = 1; changed;) {
        changed = 0;
        for (size_t at = 0; at < edges; at++)
            if (depth[to[at]] < depth[from[at]] + 1) {
                depth[to[at]] = depth[from[at]] + 1;
                changed = 1;
            }
    }
}

// The order in which nodes are added: that of the source (0), that of a list schedule which takes
// the ready node with the longest path to an end first (1), or level by level, in each the longest
// path first (2).
static void order(int how, size_t count, size_t edges, const size_t* from, const size_t* to,
                  const int* height, const int* depth, size_t* out) {
    int* waits = calloc(count + 1, sizeof *waits);
    char* done = calloc(count + 1, 1);
    for (size_t at = 0; at < edges; at++) waits[to[at]]++;
    for (size_t next = 0; next < count; next++) {
        size_t best = count;
        for (size_t at = 0; at < count; at++) {
            if (done[at] || waits[at]) continue;
            if (best == count) { best = at; if (how == 0) break; continue; }
            int deeper = how == 2 ? depth[at] - depth[best] : 0;
            if (deeper < 0 || (deeper == 0 && height[at] > height[best])) best = at;
        }
        done[best] = 1;
        out[next] = best;
        for (size_t at = 0; at < edges; at++)
            if (from[at] == best) waits[to[at]]--;
    }
    free(waits); free(done);
}

static int add(CUgraph graph, CUcontext context, CUgraphNode node, const CUgraphNode* after,
               size_t count, CUgraphNode* made) {
    CUgraphNodeType type;
    TRY(cuGraphNodeGetType(node, &type));
    if (type == CU_GRAPH_NODE_TYPE_KERNEL) {
        CUDA_KERNEL_NODE_PARAMS params;
        TRY(cuGraphKernelNodeGetParams(node, &params));
        return (int)cuGraphAddKernelNode(made, graph, after, count, &params);
    }
    if (type == CU_GRAPH_NODE_TYPE_MEMCPY) {
        CUDA_MEMCPY3D params;
        TRY(cuGraphMemcpyNodeGetParams(node, &params));
        return (int)cuGraphAddMemcpyNode(made, graph, after, count, &params, context);
    }
    if (type == CU_GRAPH_NODE_TYPE_MEMSET) {
        CUDA_MEMSET_NODE_PARAMS params;
        TRY(cuGraphMemsetNodeGetParams(node, &params));
        return (int)cuGraphAddMemsetNode(made, graph, after, count, &params, context);
    }
    return -1;
}

// Builds the graph of `source` again, with its nodes in one of the orders above. `how` + 10 also
// lists the deepest parent of each node first.
int raw_build(CUgraph source, int how, CUcontext context, CUgraph* out, CUgraphExec* exec) {
    size_t count = 0, edge_count = 0;
    TRY(cuGraphGetNodes(source, NULL, &count));
    CUgraphNode* nodes = malloc((count + 1) * sizeof *nodes);
    TRY(cuGraphGetNodes(source, nodes, &count));
    TRY(cuGraphGetEdges(source, NULL, NULL, NULL, &edge_count));
    CUgraphNode* from = malloc((edge_count + 1) * sizeof *from);
    CUgraphNode* to = malloc((edge_count + 1) * sizeof *to);
    CUgraphEdgeData* data = malloc((edge_count + 1) * sizeof *data);
    TRY(cuGraphGetEdges(source, from, to, data, &edge_count));
    size_t* at_from = malloc((edge_count + 1) * sizeof *at_from);
    size_t* at_to = malloc((edge_count + 1) * sizeof *at_to);
    for (size_t at = 0; at < edge_count; at++) {
        at_from[at] = position(nodes, count, from[at]);
        at_to[at] = position(nodes, count, to[at]);
    }
    int* height = malloc((count + 1) * sizeof *height);
    int* depth = malloc((count + 1) * sizeof *depth);
    size_t* sequence = malloc((count + 1) * sizeof *sequence);
    heights(count, edge_count, at_from, at_to, height);
    depths(count, edge_count, at_from, at_to, depth);
    order(how % 10, count, edge_count, at_from, at_to, height, depth, sequence);
    TRY(cuGraphCreate(out, 0));
    CUgraphNode* made = malloc((count + 1) * sizeof *made);
    CUgraphNode* after = malloc((count + 1) * sizeof *after);
    size_t* parents = malloc((count + 1) * sizeof *parents);
    for (size_t next = 0; next < count; next++) {
        size_t node = sequence[next], found = 0;
        for (size_t at = 0; at < edge_count; at++)
            if (at_to[at] == node) {
                size_t place = found++;
                for (; how >= 10 && place > 0 && depth[parents[place - 1]] < depth[at_from[at]]; place--)
                    parents[place] = parents[place - 1];
                parents[place] = at_from[at];
            }
        for (size_t at = 0; at < found; at++) after[at] = made[parents[at]];
        // An edge that lets a kernel start early is the only one into its node.
        CUgraphEdgeData* early = NULL;
        for (size_t at = 0; at < edge_count; at++)
            if (at_to[at] == node && data[at].type) early = &data[at];
        TRY(add(*out, context, nodes[node], after, early ? 0 : found, &made[node]));
        if (early) TRY(cuGraphAddDependencies(*out, after, &made[node], early, 1));
    }
    TRY(cuGraphInstantiate(exec, *out, 0));
    free(nodes); free(from); free(to); free(data); free(at_from); free(at_to);
    free(height); free(depth); free(sequence); free(made); free(after); free(parents);
    return 0;
}

// What a step does beside the copy and the launch, to see what each part costs.
enum { SET_CURRENT = 1, FILL_SLOT = 2 };

// One step: the copy and the launch. `parts` adds what a program does as well: it makes the context
// current, and writes values into the next of 16 pinned slots at `source`, each `bytes` apart
// rounded up to 64. Gives the microseconds that the host took.
int raw_step(CUgraphExec exec, CUstream stream, CUcontext context, CUdeviceptr target,
             unsigned char* source, size_t bytes, int parts, double* host_us) {
    static unsigned char values[1 << 20];
    static size_t next;
    double started = now_us();
    if (parts & SET_CURRENT) TRY(cuCtxSetCurrent(context));
    if (parts & FILL_SLOT) {
        source += next++ % 16 * ((bytes + 63) / 64 * 64);
        memcpy(source, values, bytes);
    }
    TRY(cuMemcpyHtoDAsync(target, source, bytes, stream));
    TRY(cuGraphLaunch(exec, stream));
    *host_us = now_us() - started;
    return 0;
}
