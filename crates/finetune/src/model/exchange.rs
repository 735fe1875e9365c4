//! The exchange of gradients between ranks: which gradients are exchanged together, and when.
//!
//! The backward pass completes gradients from the last parameter to the first. Groups follow that
//! order, so a group is exchanged while the gradients of earlier layers are computed. Within a
//! group, the gradients of replicated parameters share one buffer, so their sum is one collective;
//! each sharded parameter has its own collective. NCCL runs a group in one launch.
//!
//! A sharded token table that is also the output projection has its own group. The backward pass
//! starts with the gradient of the projection, which is exchanged immediately. It ends with the
//! gradients of the embedded tokens, which are a few rows. Ranks exchange these rows, and each rank
//! adds all of them to its block ([`Exchange::rows_of_all_ranks`]).

use retrograph_kernels::ops::GemmShape;
use retrograph_kernels::{DType, Element};
use retrograph_runtime::{CollectiveGroup, Pass, Ranks, Slice};

use super::gradient::Gradient;
use crate::error::Result;
use crate::model::passes::GradientOwner;
use crate::parameters::{
    ALIGNED_ELEMENTS, ATTENTION_NORM, EMBEDDING, HEAD, Parameter, Sharding, Storage, layer_name,
};

/// Minimum bytes of a group for which latency does not dominate the time of its exchange.
const MIN_BUCKET_BYTES: usize = 1 << 20;

/// How the gradients of a pass are stored and exchanged.
#[derive(Clone, Copy, Debug)]
pub(super) struct GradientOptions {
    pub(super) home: GradientOwner,
    pub(super) sharding: Sharding,
    /// Bytes of gradients at which a group is complete, except towards the end.
    pub(super) bucket_bytes: usize,
    /// The rows of activations, if gradients of weights of linear layers may be bf16.
    pub(super) bf16_rows: Option<usize>,
}

impl GradientOptions {
    /// Returns the dtype of the gradient of `parameter`: bf16 if one product of bf16 operands
    /// computes it, and each rank updates a block of it.
    fn dtype(&self, parameter: &Parameter) -> DType {
        let linear = parameter.storage == Storage::F32WithBf16 && parameter.name != EMBEDDING;
        let alone = self.sharding.ranks().world_size == 1;
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
    /// The number of the first group with a parameter of the first layer, or of what comes before.
    first_late: usize,
}

impl Exchange {
    /// Groups the trained `parameters` and declares their gradients. Returns the gradient of each
    /// parameter; `None` for a parameter that is not trained.
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
        if ranks.world_size == 1 {
            groups.clear();
        }
        let second_layer = layer_name(1, ATTENTION_NORM);
        let second_layer = parameters.iter().position(|parameter| parameter.name == second_layer);
        let is_late = |group: &Group| {
            let before = |&member: &usize| second_layer.is_none_or(|layer| member < layer);
            !group.is_tied_table && group.members.iter().any(before)
        };
        let first_late = groups.iter().position(is_late).unwrap_or(groups.len());
        (Self { ranks, groups, next: 0, first_late }, gradients)
    }

    /// Appends the exchange of every group whose members all have numbers of at least `from`, since
    /// their gradients are complete. The last group waits for the call with blocks to gather and
    /// also exchanges these.
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

    /// The parameters whose gradients are the last to be complete: those that are exchanged with
    /// the first layer or after it, and a tied token table.
    pub(super) fn late(&self) -> impl Iterator<Item = usize> {
        let groups = self.groups.iter().enumerate();
        let late = groups.filter(|(at, group)| *at >= self.first_late || group.is_tied_table);
        late.flat_map(|(_, group)| group.members.iter().copied())
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
        let count = self.ranks.world_size;
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

/// Returns the members of each group, first the `tied` table. With one rank, every parameter is its
/// own group.
///
/// Nothing overlaps the exchange of the last group, so groups become smaller towards the end: each
/// is complete with a third of the remaining bytes.
fn grouped(
    parameters: &[Parameter],
    options: GradientOptions,
    tied: Option<usize>,
) -> Vec<Vec<usize>> {
    let alone = options.sharding.ranks().world_size == 1;
    let mut groups: Vec<Vec<usize>> = tied.into_iter().map(|tied| vec![tied]).collect();
    let is_other = |&at: &usize| parameters[at].trainable && Some(at) != tied;
    let others: Vec<usize> = (0..parameters.len()).rev().filter(is_other).collect();
    let mut left: usize = others.iter().map(|&at| options.bytes(&parameters[at])).sum();
    let (mut bytes, mut complete) = (0, 0);
    for at in others {
        if alone || bytes >= complete {
            groups.push(Vec::new());
            bytes = 0;
            complete = (left / 3).max(MIN_BUCKET_BYTES).min(options.bucket_bytes);
        }
        bytes += options.bytes(&parameters[at]);
        left -= options.bytes(&parameters[at]);
        groups.last_mut().expect("the first parameter starts a group").push(at);
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
            GradientOwner::Transient => self.pass.transient(name, len),
            GradientOwner::External => self.pass.external(name, len),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{LoraConfig, Mode, Preset};
    use crate::parameters::inventory;

    /// Bytes of each group, in the order of their exchange.
    fn sizes(mode: Mode, bucket_bytes: usize) -> Vec<usize> {
        let parameters = inventory(&Preset::Qwen25OneAndHalf.model(), mode);
        let sharding = Sharding::new(mode, Ranks { rank: 0, world_size: 2 }, None);
        let home = GradientOwner::Transient;
        let options = GradientOptions { home, sharding, bucket_bytes, bf16_rows: None };
        let tied = tied_table(&parameters, sharding);
        let bytes = |&at: &usize| options.bytes(&parameters[at]);
        let groups = grouped(&parameters, options, tied);
        assert_eq!(
            groups.iter().flatten().count(),
            parameters.iter().filter(|p| p.trainable).count()
        );
        groups.iter().map(|group| group.iter().map(bytes).sum()).collect()
    }

    #[test]
    fn groups_become_smaller_towards_the_end() {
        const MIB: usize = 1 << 20;
        let groups = sizes(Mode::Full, 512 * MIB);
        let (table, others) = groups.split_first().unwrap();
        assert_eq!(*table, 151_936 * 1536 * 4);
        let full = others.iter().filter(|bytes| (512 * MIB..570 * MIB).contains(*bytes)).count();
        assert!(full > 6, "{others:?}");
        assert!(*others.last().unwrap() < 8 * MIB, "{others:?}");
        assert!(others.len() < full + 12, "{others:?}");
        let groups = sizes(Mode::Lora(LoraConfig::new(16, 32.0)), 512 * MIB);
        assert!((3..=6).contains(&groups.len()), "{groups:?}");
        assert!(*groups.last().unwrap() < 2 * MIB, "{groups:?}");
    }
}
