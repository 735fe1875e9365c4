//! The exchange of gradients between ranks: which gradients are exchanged together, and when.
//!
//! The backward pass completes gradients from the last parameter to the first. Groups follow that
//! order, so that a group is exchanged while the gradients of earlier layers are computed. Within a
//! group, the gradients of replicated parameters have one buffer, so that their sum is one
//! collective; sharded parameters have a collective each. NCCL runs a group in one launch.
//!
//! A sharded token table that is also the output projection has a group of its own. The backward
//! pass starts with the gradient of the projection, which is exchanged at once. It ends with the
//! gradients of the embedded tokens, which are a few rows. Ranks exchange these rows, and each adds
//! all of them to its block ([`Exchange::rows_of_all_ranks`]).

use retrograph_kernels::ops::GemmShape;
use retrograph_kernels::{DType, Element};
use retrograph_runtime::{CollectiveGroup, Pass, Ranks, Slice};

use super::gradient::Gradient;
use crate::error::Result;
use crate::model::passes::GradientHome;
use crate::parameters::{ALIGNED_ELEMENTS, EMBEDDING, HEAD, Parameter, Sharding, Storage};

/// How the gradients of a pass are kept and exchanged.
#[derive(Clone, Copy, Debug)]
pub(super) struct GradientOptions {
    pub(super) home: GradientHome,
    pub(super) sharding: Sharding,
    /// Bytes of gradients from which a group is complete.
    pub(super) group_bytes: usize,
    /// The rows of activations, if gradients of weights of linear layers may be bf16.
    pub(super) bf16_rows: Option<usize>,
}

impl GradientOptions {
    /// The dtype of the gradient of `parameter`: bf16 if one product of bf16 operands computes it,
    /// and each rank updates a block of it.
    fn dtype(&self, parameter: &Parameter) -> DType {
        let linear = parameter.storage == Storage::F32WithBf16 && parameter.name != EMBEDDING;
        let alone = self.sharding.ranks().count == 1;
        let (Some(rows), &[outputs, inputs], true) = (self.bf16_rows, &parameter.shape[..], linear)
        else {
            return DType::F32;
        };
        let product = GemmShape { rows, inputs, outputs }.prefers_bf16_activations(DType::Bf16);
        if product && (alone || self.sharding.is_sharded(parameter)) {
            DType::Bf16
        } else {
            DType::F32
        }
    }

    fn bytes(&self, parameter: &Parameter) -> usize {
        let element = if self.dtype(parameter) == DType::Bf16 { 2 } else { 4 };
        parameter.len() * element
    }
}

/// Gradients that are exchanged together.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    /// The parameters, in descending order.
    pub(super) members: Vec<usize>,
    /// The gradients of replicated parameters, in as few ranges as possible.
    replicated: Vec<Slice<f32>>,
    /// The gradients of sharded parameters.
    sharded: Vec<Gradient>,
    /// Whether it is the token table that is also the output projection.
    is_tied_table: bool,
}

/// The groups of a pass, in the order of their exchange. There are none if there is one rank.
#[derive(Clone, Debug)]
pub(super) struct Exchange {
    ranks: Ranks,
    pub(super) groups: Vec<Group>,
    /// The next group.
    next: usize,
}

impl Exchange {
    /// Groups the trained `parameters`, and declares their gradients, which are returned by
    /// parameter: `None` for those that are not trained.
    pub(super) fn declare(
        pass: &mut Pass,
        parameters: &[Parameter],
        options: GradientOptions,
    ) -> (Self, Vec<Option<Gradient>>) {
        let ranks = options.sharding.ranks();
        let mut gradients = vec![None; parameters.len()];
        let mut groups = Vec::new();
        let tied = tied_table(parameters, options.sharding);
        for members in grouped(parameters, options, tied) {
            let is_tied_table = tied.is_some_and(|tied| members == [tied]);
            let mut declared = Declared { pass, parameters, options, gradients: &mut gradients };
            let group = declared.group(members, groups.len());
            groups.push(Group { is_tied_table, ..group });
        }
        if ranks.count == 1 {
            groups.clear();
        }
        (Self { ranks, groups, next: 0 }, gradients)
    }

    /// Appends the exchange of every group all of whose members have numbers of at least `from`:
    /// their gradients are complete. The last group waits for the call that has blocks to gather,
    /// which it exchanges, too.
    pub(super) fn append(
        &mut self,
        pass: &mut Pass,
        from: usize,
        gathered: &[Slice<f32>],
    ) -> Result<()> {
        while let Some(group) = self.groups.get(self.next) {
            let is_last = self.next + 1 == self.groups.len();
            let missing = group.members.iter().any(|&member| member < from);
            let incomplete = missing && !group.is_tied_table;
            if incomplete || (is_last && gathered.is_empty()) {
                break;
            }
            self.next += 1;
            let mut collectives = CollectiveGroup::new(self.ranks);
            for &slice in &group.replicated {
                collectives = collectives.all_reduce(slice)?;
            }
            for &slice in &group.sharded {
                collectives = slice.reduce_scatter(collectives)?;
            }
            if is_last {
                for &slice in gathered {
                    collectives = collectives.all_gather(slice)?;
                }
            }
            pass.set_scope(format!("gradients {}", self.next - 1));
            pass.collectives(collectives)?;
        }
        Ok(())
    }
}

/// Rows of all ranks: the gradients of embedded tokens.
pub(super) struct Rows {
    pub(super) tokens: Slice<u32>,
    pub(super) grad: Slice<f32>,
}

impl Exchange {
    /// Appends the exchange of `rows`, if the gradient of the token table has been exchanged
    /// without them.
    pub(super) fn rows_of_all_ranks(&self, pass: &mut Pass, rows: Rows) -> Result<Rows> {
        let exchanged = self.groups[..self.next].iter().any(|group| group.is_tied_table);
        if !exchanged {
            return Ok(rows);
        }
        let count = self.ranks.count;
        let tokens = pass.transient("tokens of all ranks", rows.tokens.len() * count);
        let grad = pass.transient("gradients of tokens of all ranks", rows.grad.len() * count);
        pass.copy(rows.tokens, tokens.slice(self.ranks.block(tokens.len())))?;
        pass.copy(rows.grad, grad.slice(self.ranks.block(grad.len())))?;
        let group = CollectiveGroup::new(self.ranks).all_gather(tokens)?.all_gather(grad)?;
        pass.collectives(group)?;
        Ok(Rows { tokens, grad })
    }
}

/// The sharded token table that is also the output projection.
fn tied_table(parameters: &[Parameter], sharding: Sharding) -> Option<usize> {
    let is_tied = parameters.iter().all(|parameter| parameter.name != HEAD);
    parameters.iter().position(|parameter| is_tied && sharding.gathers_at_once(parameter))
}

/// The members of each group, first the `tied` table. With one rank, every parameter is a group of
/// its own.
fn grouped(
    parameters: &[Parameter],
    options: GradientOptions,
    tied: Option<usize>,
) -> Vec<Vec<usize>> {
    let alone = options.sharding.ranks().count == 1;
    let mut groups: Vec<Vec<usize>> = tied.into_iter().map(|tied| vec![tied]).collect();
    let mut bytes = usize::MAX;
    let others = |&at: &usize| parameters[at].trainable && Some(at) != tied;
    for number in (0..parameters.len()).rev().filter(others) {
        if alone || bytes >= options.group_bytes {
            groups.push(Vec::new());
            bytes = 0;
        }
        bytes += options.bytes(&parameters[number]);
        groups.last_mut().expect("the first parameter starts a group").push(number);
    }
    groups
}

/// Declares the gradients of groups.
struct Declared<'a> {
    pass: &'a mut Pass,
    parameters: &'a [Parameter],
    options: GradientOptions,
    gradients: &'a mut [Option<Gradient>],
}

impl Declared<'_> {
    fn group(&mut self, members: Vec<usize>, number: usize) -> Group {
        let GradientOptions { sharding, .. } = self.options;
        let of = |&member: &usize| &self.parameters[member];
        let is_replicated = |member: &usize| {
            !sharding.is_sharded(of(member)) && self.options.dtype(of(member)) == DType::F32
        };
        let (replicated, sharded): (Vec<usize>, Vec<usize>) =
            members.iter().partition(|member| is_replicated(member));
        let replicated = self.together(&replicated, number);
        let mut whole = Vec::new();
        for member in sharded {
            let parameter = &self.parameters[member];
            let (name, len) = (format!("grad.{}", parameter.name), parameter.len());
            let gradient = match self.options.dtype(parameter) {
                DType::Bf16 => Gradient::Bf16(self.buffer(name, len)),
                _ => Gradient::F32(self.buffer(name, len)),
            };
            self.gradients[member] = Some(gradient);
            whole.push(gradient);
        }
        Group { members, replicated, sharded: whole, is_tied_table: false }
    }

    /// Declares one buffer for the gradients of `members`, and returns its ranges without gaps.
    fn together(&mut self, members: &[usize], number: usize) -> Vec<Slice<f32>> {
        let lens: Vec<usize> =
            members.iter().map(|&member| self.parameters[member].len()).collect();
        let padded = |len: usize| len.next_multiple_of(ALIGNED_ELEMENTS);
        let all = lens.iter().map(|&len| padded(len)).sum::<usize>();
        if members.is_empty() {
            return Vec::new();
        }
        let name = match members {
            [one] => format!("grad.{}", self.parameters[*one].name),
            _ => format!("gradients {number}"),
        };
        // A single gradient needs no padding.
        let buffer = self.buffer(name, if members.len() == 1 { lens[0] } else { all });
        let (mut start, mut ranges) = (0, Vec::<std::ops::Range<usize>>::new());
        for (&member, len) in members.iter().zip(lens) {
            let range = start..start + len;
            self.gradients[member] = Some(Gradient::F32(buffer.slice(range.clone())));
            start += padded(len);
            match ranges.last_mut().filter(|last| last.end == range.start) {
                Some(last) => last.end = range.end,
                None => ranges.push(range),
            }
        }
        ranges.into_iter().map(|range| buffer.slice(range)).collect()
    }

    fn buffer<T: Element>(&mut self, name: String, len: usize) -> Slice<T> {
        match self.options.home {
            GradientHome::Transient => self.pass.transient(name, len),
            GradientHome::External => self.pass.external(name, len),
        }
    }
}
