//! Conditional nodes: handles, nodes, and what their bodies may contain.

use std::sync::Arc;

use retrograph_driver_sys::*;

use crate::argument::{Call, Out};
use crate::refusal::{Refusal, Rule, invalid, refuse};
use crate::state::{Conditional, NodeKind, Owner, State};
use crate::work::{Operation, Plan, PlanWork};

/// A limit of bodies per node, far above the needs of programs.
const MAX_BODIES: u32 = 1 << 16;
/// A limit of nested bodies, far above the needs of programs: each is a level of recursion here.
const MAX_DEPTH: usize = 64;

impl State {
    pub(crate) fn cuGraphConditionalHandleCreate(
        &mut self,
        handle: Out<CUgraphConditionalHandle>,
        graph: CUgraph,
        context: CUcontext,
        default: u32,
        flags: u32,
    ) -> Call {
        handle.require()?;
        let graph = self.known_graph(graph)?;
        self.check_conditional_context(context)?;
        if flags & !CU_GRAPH_COND_ASSIGN_DEFAULT != 0 {
            return Err(invalid(Rule::GraphConditionalFlags));
        }
        let (root, _) = self.root_of(graph)?;
        let defaults = &mut self.graphs.get_mut(root)?.defaults;
        defaults.push((flags & CU_GRAPH_COND_ASSIGN_DEFAULT != 0).then_some(default));
        let number = defaults.len() as u64;
        handle.write(number)
    }

    /// Refuses null, even if a context is current.
    fn check_conditional_context(&mut self, context: CUcontext) -> Call {
        if context.is_null() {
            let code = CUresult::CUDA_ERROR_INVALID_CONTEXT;
            return Err(refuse(code, Rule::GraphConditionalContext));
        }
        self.named_or_current(context).map(|_| ())
    }

    /// Creates a conditional node of `graph` with new bodies, and writes their list to `given`.
    pub(super) fn conditional_kind(
        &mut self,
        graph: CUgraph,
        given: &mut CUDA_CONDITIONAL_NODE_PARAMS,
    ) -> Result<NodeKind, Refusal> {
        use CUgraphConditionalNodeType as T;
        self.check_conditional_context(given.ctx)?;
        let is_known = match given.r#type {
            T::CU_GRAPH_COND_TYPE_IF => matches!(given.size, 1 | 2),
            T::CU_GRAPH_COND_TYPE_WHILE => given.size == 1,
            T::CU_GRAPH_COND_TYPE_SWITCH => given.size > 0,
            _ => false,
        };
        if !is_known {
            return Err(invalid(Rule::GraphConditionalShape));
        }
        let (root, depth) = self.root_of(graph)?;
        if given.size > MAX_BODIES || depth > MAX_DEPTH {
            return Err(
                self.unsupported("a conditional node with this many bodies or this nesting depth")
            );
        }
        let handles = 1..=self.graphs.get(root)?.defaults.len() as u64;
        let has_it = |kind: &NodeKind| match kind {
            NodeKind::Conditional(conditional) => conditional.handle == given.handle,
            _ => false,
        };
        if !handles.contains(&given.handle) || self.any_node(root, &has_it)? {
            return Err(invalid(Rule::GraphConditionalHandle));
        }
        let bodies: Arc<[CUgraph]> = (0..given.size).map(|_| self.new_graph(Owner::Node)).collect();
        given.phGraph_out = bodies.as_ptr().cast_mut();
        let (handle, r#type) = (given.handle, given.r#type);
        Ok(NodeKind::Conditional(Conditional { handle, r#type, bodies }))
    }
}

/// Refuses handles without a node, and nodes that are not allowed in a body.
pub(super) fn check_conditionals(plan: &Plan) -> Result<(), (Refusal, CUgraphNode)> {
    if used_handles(plan) < plan.defaults.len() {
        return Err((invalid(Rule::GraphConditionalUnused), CUgraphNode::NULL));
    }
    check_bodies(plan)
}

/// The number of conditional nodes, each of which has its own handle.
fn used_handles(plan: &Plan) -> usize {
    let nodes = plan.nodes.iter().map(|node| &node.work);
    let count = nodes.map(|work| {
        let own = usize::from(matches!(work, PlanWork::Conditional(_)));
        own + work.plans().iter().map(used_handles).sum::<usize>()
    });
    count.sum()
}

fn check_bodies(plan: &Plan) -> Result<(), (Refusal, CUgraphNode)> {
    for node in &plan.nodes {
        let is_body = matches!(node.work, PlanWork::Conditional(_));
        let check = if is_body { check_body } else { check_bodies };
        node.work.plans().iter().try_for_each(check)?;
    }
    Ok(())
}

fn check_body(plan: &Plan) -> Result<(), (Refusal, CUgraphNode)> {
    for node in &plan.nodes {
        let rule = match &node.work {
            PlanWork::Operation(Operation::Launch(_) | Operation::Fill(_))
            | PlanWork::Empty
            | PlanWork::Child(_)
            | PlanWork::Conditional(_) => None,
            PlanWork::Operation(Operation::Copy(copy)) => {
                copy.is_pageable().then_some(Rule::GraphConditionalPageable)
            }
            _ => Some(Rule::GraphConditionalBody),
        };
        if let Some(rule) = rule {
            return Err((invalid(rule), node.source));
        }
        node.work.plans().iter().try_for_each(check_body)?;
    }
    Ok(())
}
