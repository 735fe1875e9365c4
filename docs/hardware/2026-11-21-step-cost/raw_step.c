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

// Builds the graph of `source` again. With `slack` >= 0, nodes whose longest path is within `slack`
// nodes of the longest of all get the highest priority, the others the lowest.
int raw_build(CUgraph source, int slack, CUcontext context, CUgraph* out, CUgraphExec* exec) {
    size_t count = 0, edge_count = 0;
    TRY(cuGraphGetNodes(source, NULL, &count));
    CUgraphNode* nodes = malloc(count * sizeof *nodes);
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
    heights(count, edge_count, at_from, at_to, height);
    depths(count, edge_count, at_from, at_to, depth);
    int longest = 0;
    for (size_t at = 0; at < count; at++)
        if (height[at] > longest) longest = height[at];
    CUgraph graph;
    TRY(cuGraphCreate(&graph, 0));
    CUgraphNode* made = malloc((count + 1) * sizeof *made);
    for (size_t at = 0; at < count; at++) {
        CUgraphNodeType type;
        TRY(cuGraphNodeGetType(nodes[at], &type));
        if (type == CU_GRAPH_NODE_TYPE_KERNEL) {
            CUDA_KERNEL_NODE_PARAMS params;
            TRY(cuGraphKernelNodeGetParams(nodes[at], &params));
            TRY(cuGraphAddKernelNode(&made[at], graph, NULL, 0, &params));
            if (slack >= 0) {
                int least, greatest;
                TRY(cuCtxGetStreamPriorityRange(&least, &greatest));
                CUkernelNodeAttrValue value;
                memset(&value, 0, sizeof value);
                value.priority = depth[at] + height[at] - 1 + slack >= longest ? greatest : least;
                TRY(cuGraphKernelNodeSetAttribute(made[at], CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
            }
        } else if (type == CU_GRAPH_NODE_TYPE_MEMCPY) {
            CUDA_MEMCPY3D params;
            TRY(cuGraphMemcpyNodeGetParams(nodes[at], &params));
            TRY(cuGraphAddMemcpyNode(&made[at], graph, NULL, 0, &params, context));
        } else if (type == CU_GRAPH_NODE_TYPE_MEMSET) {
            CUDA_MEMSET_NODE_PARAMS params;
            TRY(cuGraphMemsetNodeGetParams(nodes[at], &params));
            TRY(cuGraphAddMemsetNode(&made[at], graph, NULL, 0, &params, context));
        } else {
            return -1;
        }
    }
    for (size_t at = 0; at < edge_count; at++)
        TRY(cuGraphAddDependencies(graph, &made[at_from[at]], &made[at_to[at]], NULL, 1));
    TRY(cuGraphInstantiate(exec, graph, 0));
    *out = graph;
    free(nodes); free(from); free(to); free(data); free(at_from); free(at_to);
    free(height); free(depth); free(made);
    return 0;
}

// One step: the copy and the launch. Gives the microseconds that the host took.
int raw_step(CUgraphExec exec, CUstream stream, CUdeviceptr target, const void* source,
             size_t bytes, double* host_us) {
    double started = now_us();
    TRY(cuMemcpyHtoDAsync(target, source, bytes, stream));
    TRY(cuGraphLaunch(exec, stream));
    *host_us = now_us() - started;
    return 0;
}
