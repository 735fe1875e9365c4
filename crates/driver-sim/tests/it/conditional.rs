//! Conditional nodes: loops controlled by kernels, and misuse by programs.

use std::ffi::c_void;
use std::time::{Duration, Instant};

use retrograph_driver_sim::DiagnosticKind;
use retrograph_driver_sys::*;

use crate::machine::{Machine, cu};

const SUCCESS: CUresult = CUresult::CUDA_SUCCESS;
const UNKNOWN: CUresult = CUresult::CUDA_ERROR_UNKNOWN;

/// `set(handle, value)` sets a handle. `count_down(handle, words)` adds 1 to `words[0]`, subtracts
/// 1 from `words[1]`, and sets the handle to the difference.
const KERNELS: &std::ffi::CStr = c"
.version 7.0
.target sm_70
.address_size 64
.extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);
.visible .entry set(.param .u64 handle, .param .u32 value)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<2>;
    .param .b64 a;
    .param .b32 b;
    ld.param.u64 %rd1, [handle];
    ld.param.u32 %r1, [value];
    st.param.b64 [a], %rd1;
    st.param.b32 [b], %r1;
    call.uni cudaGraphSetConditional, (a, b);
    ret;
}
.visible .entry count_down(.param .u64 handle, .param .u64 words)
{
    .reg .b32 %r<3>;
    .reg .b64 %rd<3>;
    .param .b64 a;
    .param .b32 b;
    ld.param.u64 %rd1, [handle];
    ld.param.u64 %rd2, [words];
    ld.global.u32 %r1, [%rd2];
    add.u32 %r1, %r1, 1;
    st.global.u32 [%rd2], %r1;
    ld.global.u32 %r2, [%rd2+4];
    sub.u32 %r2, %r2, 1;
    st.global.u32 [%rd2+4], %r2;
    st.param.b64 [a], %rd1;
    st.param.b32 [b], %r2;
    call.uni cudaGraphSetConditional, (a, b);
    ret;
}
";

const IF: CUgraphConditionalNodeType = CUgraphConditionalNodeType::CU_GRAPH_COND_TYPE_IF;
const WHILE: CUgraphConditionalNodeType = CUgraphConditionalNodeType::CU_GRAPH_COND_TYPE_WHILE;

impl Machine {
    /// Creates a handle with an optional default.
    fn handle(&self, graph: CUgraph, default: Option<u32>) -> CUgraphConditionalHandle {
        let mut handle = 0;
        let flags = if default.is_some() { CU_GRAPH_COND_ASSIGN_DEFAULT } else { 0 };
        let (context, default) = (self.context, default.unwrap_or(0));
        let create = self.simulator.table().cuGraphConditionalHandleCreate.expect("since 12.3");
        // SAFETY: the pointer is valid during the call.
        let code = unsafe { create(&mut handle, graph, context, default, flags) };
        assert_eq!(code, SUCCESS);
        handle
    }

    /// The parameters of a conditional node with one body.
    fn conditional_parameters(
        &self,
        handle: CUgraphConditionalHandle,
        r#type: CUgraphConditionalNodeType,
    ) -> CUgraphNodeParams {
        let conditional = CUDA_CONDITIONAL_NODE_PARAMS {
            handle,
            r#type,
            size: 1,
            ctx: self.context,
            ..CUDA_CONDITIONAL_NODE_PARAMS::default()
        };
        CUgraphNodeParams {
            r#type: CUgraphNodeType::CU_GRAPH_NODE_TYPE_CONDITIONAL,
            anonymous: CUgraphNodeParams_anonymous { conditional },
            ..CUgraphNodeParams::default()
        }
    }

    /// Adds a conditional node after others. Returns the node and its body.
    fn conditional(
        &self,
        graph: CUgraph,
        after: &[CUgraphNode],
        handle: CUgraphConditionalHandle,
        r#type: CUgraphConditionalNodeType,
    ) -> (CUgraphNode, CUgraph) {
        let (mut node, mut given) =
            (CUgraphNode::NULL, self.conditional_parameters(handle, r#type));
        let (from, count, none) = (after.as_ptr(), after.len(), std::ptr::null());
        let add = self.simulator.table().cuGraphAddNode_v2.expect("since 12.3");
        // SAFETY: the pointers are valid during the call.
        let code = unsafe { add(&mut node, graph, from, none, count, &mut given) };
        assert_eq!(code, SUCCESS);
        // SAFETY: the call wrote a list of one body, which lives as long as the node.
        let body = unsafe { *given.anonymous.conditional.phGraph_out };
        (node, body)
    }

    /// Adds a kernel node with a handle and another parameter.
    fn kernel(
        &self,
        graph: CUgraph,
        after: &[CUgraphNode],
        module: CUmodule,
        name: &std::ffi::CStr,
        mut handle: u64,
        mut other: u64,
    ) -> CUgraphNode {
        let (mut func, mut node) = (CUfunction::NULL, CUgraphNode::NULL);
        let code = cu!(self, cuModuleGetFunction(&mut func, module, name.as_ptr()));
        assert_eq!(code, SUCCESS);
        let mut list = [(&raw mut handle).cast::<c_void>(), (&raw mut other).cast()];
        let kernelParams = list.as_mut_ptr();
        let given =
            CUDA_KERNEL_NODE_PARAMS { func, kernelParams, ..CUDA_KERNEL_NODE_PARAMS::default() };
        let (from, count) = (after.as_ptr(), after.len());
        let code = cu!(self, cuGraphAddKernelNode_v2(&mut node, graph, from, count, &given));
        assert_eq!(code, SUCCESS);
        node
    }

    #[track_caller]
    fn assert_said(&self, kind: DiagnosticKind, expected: &str) {
        let said = self.diagnostics(kind);
        assert!(said.iter().any(|said| said.contains(expected)), "{said:?}");
    }

    fn outcome(&self, graph: CUgraph) -> CUresult {
        let (exec, stream) = (self.instantiate(graph).expect("a complete graph"), self.stream());
        assert_eq!(cu!(self, cuGraphLaunch(exec, stream)), SUCCESS);
        self.sync(stream)
    }
}

/// The loop of a decoder: one launch iterates as often as a word in memory requires, and so does
/// the next.
#[test]
fn a_kernel_controls_the_iterations_of_a_loop() {
    let machine = Machine::new();
    let module = machine.load(KERNELS).expect("the kernels load");
    let (graph, words) = (machine.graph(), machine.words(&[0, 5, 0, 9]));
    let handle = machine.handle(graph, Some(1));
    let (_, body) = machine.conditional(graph, &[], handle, WHILE);
    machine.kernel(body, &[], module, c"count_down", handle, words);
    assert_eq!(machine.outcome(graph), SUCCESS);
    assert_eq!([machine.peek(words), machine.peek(words + 4)], [5, 0]);
}

#[test]
fn a_loop_takes_the_sum_of_the_times_of_its_iterations() {
    let time = |rounds| {
        let machine = Machine::new();
        let module = machine.load(KERNELS).expect("the kernels load");
        let (graph, words) = (machine.graph(), machine.words(&[0, rounds]));
        let handle = machine.handle(graph, Some(1));
        let (_, body) = machine.conditional(graph, &[], handle, WHILE);
        machine.kernel(body, &[], module, c"count_down", handle, words);
        let exec = machine.instantiate(graph).expect("a complete graph");
        let (since, stream) = (Instant::now(), machine.stream());
        machine.outlast(stream, &since);
        let start = machine.record(stream);
        assert_eq!(cu!(machine, cuGraphLaunch(exec, stream)), SUCCESS);
        let end = machine.record(stream);
        assert_eq!(machine.sync(stream), SUCCESS);
        machine.nanoseconds(start, end)
    };
    let one = time(1);
    assert!(one > 0);
    assert_eq!([time(2), time(5)], [2 * one, 5 * one]);
}

/// A body runs between the nodes before and after its node.
#[test]
fn a_body_runs_at_the_position_of_its_node() {
    for seed in 0..8 {
        let machine = Machine::seeded(seed);
        let module = machine.load(KERNELS).expect("the kernels load");
        let (graph, words) = (machine.graph(), machine.words(&[0, 3, 0, 0]));
        let [handle, second] = [(); 2].map(|()| machine.handle(graph, None));
        let first = machine.kernel(graph, &[], module, c"set", handle, 1);
        let (node, body) = machine.conditional(graph, &[first], handle, WHILE);
        machine.kernel(body, &[], module, c"count_down", handle, words);
        // The words are 3 and 0 now, so this results in 4 and -1.
        let last = machine.kernel(graph, &[node], module, c"count_down", second, words);
        let (_, body) = machine.conditional(graph, &[last], second, IF);
        machine.kernel(body, &[], module, c"count_down", second, words + 8);
        assert_eq!(machine.outcome(graph), SUCCESS);
        let values = [0, 4, 8].map(|offset| machine.peek(words + offset));
        assert_eq!(values, [4, u32::MAX, 1], "seed {seed}");
    }
}

#[test]
fn an_unset_value_is_undefined() {
    let machine = Machine::new();
    let graph = machine.graph();
    let handle = machine.handle(graph, None);
    machine.conditional(graph, &[], handle, IF);
    assert_eq!(machine.outcome(graph), UNKNOWN);
    machine.assert_said(
        DiagnosticKind::Undefined,
        "no kernel set the conditional handle 1 in this launch, and it has no default",
    );
}

#[test]
fn an_endless_conditional_loop_is_stopped() {
    let machine = Machine::new();
    let graph = machine.graph();
    let handle = machine.handle(graph, Some(1));
    machine.conditional(graph, &[], handle, WHILE);
    let start = Instant::now();
    assert_eq!(machine.outcome(graph), UNKNOWN);
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    machine.assert_said(
        DiagnosticKind::Undefined,
        "the loop of the conditional handle 1 ran 1048576 times and goes on",
    );
}

#[test]
fn a_kernel_outside_a_graph_has_no_handles() {
    let machine = Machine::new();
    let module = machine.load(KERNELS).expect("the kernels load");
    let (mut function, stream) = (CUfunction::NULL, machine.stream());
    let code = cu!(machine, cuModuleGetFunction(&mut function, module, c"set".as_ptr()));
    assert_eq!(code, SUCCESS);
    let (mut handle, mut value) = (1u64, 1u32);
    let mut list = [(&raw mut handle).cast::<c_void>(), (&raw mut value).cast()];
    let (list, none) = (list.as_mut_ptr(), std::ptr::null_mut());
    let code = cu!(machine, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, list, none));
    assert_eq!((code, machine.sync(stream)), (SUCCESS, CUresult::CUDA_ERROR_ILLEGAL_ADDRESS));
    machine.assert_said(
        DiagnosticKind::Fault,
        "cudaGraphSetConditional in a launch that is not part of a graph",
    );
}

#[test]
fn bodies_are_drawn_inside_their_node() {
    let machine = Machine::new();
    let graph = machine.graph();
    let handle = machine.handle(graph, Some(1));
    let (_, body) = machine.conditional(graph, &[], handle, IF);
    let (mut node, none) = (CUgraphNode::NULL, std::ptr::null());
    assert_eq!(cu!(machine, cuGraphAddEmptyNode(&mut node, body, none, 0)), SUCCESS);
    let file = tempfile::NamedTempFile::new().expect("a file");
    let path = std::ffi::CString::new(file.path().to_str().expect("a path of text")).unwrap();
    assert_eq!(cu!(machine, cuGraphDebugDotPrint(graph, path.as_ptr(), 0)), SUCCESS);
    let text = std::fs::read_to_string(file.path()).expect("the call wrote it");
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    assert!(lines[1].contains("conditional, handle 1"), "{text}");
    assert!(lines[2].starts_with("subgraph cluster_") && lines[3].contains("empty"), "{text}");
}

/// Unlimited nesting is refused before the simulator's stack overflows.
#[test]
fn nesting_of_bodies_has_a_limit() {
    let machine = Machine::new();
    let graph = machine.graph();
    let mut inner = graph;
    for _ in 0..65 {
        let handle = machine.handle(graph, Some(1));
        (_, inner) = machine.conditional(inner, &[], handle, IF);
    }
    let handle = machine.handle(inner, Some(1));
    let (mut node, mut given) = (CUgraphNode::NULL, machine.conditional_parameters(handle, IF));
    let (add, none) = (machine.simulator.table().cuGraphAddNode_v2, std::ptr::null());
    let add = add.expect("since 12.3");
    // SAFETY: the pointers are valid during the call.
    let code = unsafe { add(&mut node, inner, none, none.cast(), 0, &mut given) };
    assert_eq!(code, CUresult::CUDA_ERROR_NOT_SUPPORTED);
}

/// A copy would share the bodies with the graph.
#[test]
fn a_graph_with_conditional_nodes_does_not_become_a_child() {
    let machine = Machine::new();
    let (graph, outer, plain) = (machine.graph(), machine.graph(), machine.graph());
    let handle = machine.handle(graph, Some(1));
    machine.conditional(graph, &[], handle, IF);
    let (mut node, none) = (CUgraphNode::NULL, std::ptr::null());
    let code = cu!(machine, cuGraphAddChildGraphNode(&mut node, outer, none, 0, plain));
    assert_eq!(code, SUCCESS);
    let child = CUDA_CHILD_GRAPH_NODE_PARAMS { graph, ..Default::default() };
    let mut given = CUgraphNodeParams {
        r#type: CUgraphNodeType::CU_GRAPH_NODE_TYPE_GRAPH,
        anonymous: CUgraphNodeParams_anonymous { graph: child },
        ..CUgraphNodeParams::default()
    };
    let set = machine.simulator.table().cuGraphNodeSetParams.expect("since 12.2");
    // SAFETY: the pointer is valid during the call.
    let code = unsafe { set(node, &mut given) };
    assert_eq!(code, CUresult::CUDA_ERROR_NOT_SUPPORTED);
    let exec = machine.instantiate(outer).expect("the child is as before");
    let code = cu!(machine, cuGraphExecChildGraphNodeSetParams(exec, node, graph));
    assert_eq!(code, CUresult::CUDA_ERROR_NOT_SUPPORTED);
    assert_eq!(cu!(machine, cuGraphDestroy(graph)), SUCCESS);
}
