//! Matrices times one vector: `y = α·W·x (+ bias) (+ y)`, for up to three W, stored
//! `outputs × inputs` in f32, bf16 or NF4, and up to three more in f32 beside those that are no
//! codes.
//!
//! One row of activations uses every weight once, so that the floor is the bytes of W. A warp reads
//! four rows side by side by aligned vectors, two at a time, and x from the cache. Factors are f32:
//! x as it is, and weights as they are stored, decoded but not rounded.
//!
//! The entries with `norm` in their name multiply by `x ⊙ gamma`, and the sums by
//! `1 / sqrt(mean(x²) + eps)` at the end: an RMSNorm in front, whose squares are added beside the
//! products. Those with `gated` do so too, and write `silu(W0·x + bias0) · (W1·x + bias1)`.
//!
//! **Ahead.** The first vectors of the weights are loaded before the kernel waits for those in
//! front of it, which launches declare. Nothing else is. When a block has all of its weights on
//! their way, or in a long contraction its last, it asks for a part of what the launch behind it
//! reads, which then lies in the L2 cache.
//!
//! **Grid.** Blocks of 8 warps. In the entries that end in `split<S>` S warps share four rows, each
//! with every S-th run of 32 vectors of the contraction; few outputs are split more, so that a
//! device is full. Many outputs are not split, and a warp that is done takes the next four rows of
//! its own, whose first vectors it loads before it adds up.
//!
//! **Determinism.** A lane adds its vectors in ascending order, a butterfly of fixed shape adds the
//! lanes, and the parts of a split are added in ascending order. Operands that are not aligned, and
//! contractions that are no multiple of a vector, are read one by one in the same order.

mod lanes;
mod matrices;
mod norm;

use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::{Entry, Module};
use retrograph_ptx::build::{Kernel, ModuleBuilder, Pred, Value};

use crate::primitives::pdl;
use crate::primitives::sigmoid::silu;
use lanes::Lanes;
use matrices::Matrices;
use norm::Norm;

/// Rows of a warp.
const ROWS: usize = 4;
/// Warps of a block.
const WARPS: u32 = 8;
/// y is added to, not overwritten.
const ACCUMULATE: u32 = 1;
/// x and w are read in aligned vectors.
const VECTORS: u32 = 2;

/// How W is stored, by the name of its image.
#[derive(Clone, Copy, PartialEq)]
enum Storage {
    F32,
    Bf16,
    Nf4,
}

/// What is made of the sums.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    Plain,
    Norm,
    Gated,
}

/// The image for W in f32.
pub(crate) fn f32(target: SmTarget) -> Module {
    module(target, ("gemv", Storage::F32))
}

/// The image for W in bf16.
pub(crate) fn bf16(target: SmTarget) -> Module {
    module(target, ("gemv_bf16", Storage::Bf16))
}

/// The image for W in NF4.
pub(crate) fn nf4(target: SmTarget) -> Module {
    module(target, ("gemv_nf4", Storage::Nf4))
}

fn module(target: SmTarget, (name, storage): (&str, Storage)) -> Module {
    let forms = [("", Form::Plain), ("_norm", Form::Norm), ("_gated", Form::Gated)];
    let mut module = ModuleBuilder::new(target);
    for ((part, form), split) in forms.iter().flat_map(|form| [1, 2, 4, 8].map(|s| (*form, s))) {
        let kind = Kind { target, storage, form, split };
        module = module.entry(entry(&format!("{name}{part}_split{split}"), kind));
    }
    module.build()
}

/// What tells entries apart.
#[derive(Clone, Copy)]
struct Kind {
    target: SmTarget,
    storage: Storage,
    form: Form,
    split: u32,
}

impl Kind {
    /// Outputs of a team of warps: a gated one takes two rows.
    fn outputs(self) -> u32 {
        if self.form == Form::Gated { ROWS as u32 / 2 } else { ROWS as u32 }
    }
}

fn entry(name: &str, kind: Kind) -> Entry {
    Kernel::build(name, |k| {
        k.max_threads(32 * WARPS);
        // As many blocks as dispatch expects side by side where nothing is split.
        k.min_blocks(3);
        let matrices = Matrices::declare(k, kind);
        pdl::launch_dependents(k, kind.target);
        matrices.fill_tables();
        let lanes = Lanes::new(k, kind, &matrices);
        let vectors = (matrices.flags & VECTORS).ne(0);
        let number = k.ctaid_x() * (WARPS / kind.split) + k.warp() / kind.split;
        k.when(vectors, || lanes.begin(&matrices.team(number)));
        // Blocks that have one team, and all of it under way.
        let all_ahead = matrices.inputs.le(Lanes::ahead(kind));
        if kind.split > 1 {
            matrices.ask_for_next(all_ahead);
        }
        pdl::wait(k, kind.target);
        let work = Work { k: *k, kind, matrices, lanes, vectors };
        if kind.split > 1 {
            work.team(number);
            return;
        }
        let (at, stride) = (k.var(number), k.nctaid_x() * WARPS);
        k.while_loop(
            || at.get().lt(work.matrices.teams),
            || {
                work.team(at.get());
                at.add_assign(stride);
            },
        );
    })
}

/// What a warp does for one team after the other.
struct Work<'k> {
    k: Kernel<'k>,
    kind: Kind,
    matrices: Matrices<'k>,
    lanes: Lanes<'k>,
    vectors: Pred<'k>,
}

impl<'k> Work<'k> {
    /// The sums of a team, whose first vectors were loaded, and its outputs.
    fn team(&self, number: Value<'k, u32>) {
        let Self { k, kind, matrices, lanes, vectors } = self;
        let team = matrices.team(number);
        let lane = k.lane();
        let output = team.first + lane;
        let leads = (k.warp() & (kind.split - 1)).eq(0) & lane.lt(kind.outputs());
        let leads = leads & output.lt(team.outputs) & number.lt(matrices.teams);
        // What is added at the end comes while the products are computed.
        let added = [(); 3].map(|()| k.var(0.0f32));
        k.when(leads, || {
            for (bias, added) in team.biases.iter().zip(added) {
                k.when(!bias.is_null(), || added.set(bias.load(output)));
            }
            k.when((matrices.flags & ACCUMULATE).ne(0), || added[2].set(team.y.load(output)));
        });
        lanes.clear();
        k.when_else(*vectors, || lanes.by_vectors(&team), || lanes.one_by_one(&team));
        if kind.split == 1 {
            let next = number + k.nctaid_x() * WARPS;
            k.when(*vectors & next.lt(matrices.teams), || lanes.begin(&matrices.team(next)));
            matrices.ask_for_next(next.ge(matrices.teams));
        } else {
            matrices.ask_for_next(matrices.inputs.gt(Lanes::ahead(*kind)));
        }
        let sums = self.added_up();
        k.when(leads, || {
            let [first, second, before] = added.map(|added| added.get());
            let [sum, gated, squares] = sums(lane);
            let norm = (kind.form != Form::Plain).then(|| Norm::of(&self.matrices));
            let alpha = norm.map_or(matrices.alpha, |norm| matrices.alpha * norm.rstd(squares));
            let result = k.var(sum * alpha + first);
            if kind.form == Form::Gated {
                result.update(|gate| silu(gate) * (gated * alpha + second));
            }
            k.when((matrices.flags & ACCUMULATE).ne(0), || result.add_assign(before));
            team.y.store(output, result.get());
        });
    }

    /// The sums over lanes and parts: gives those of an output of the team, by its number: that of
    /// its row, that of the row that it is gated by, and the squares of x.
    fn added_up(&self) -> impl Fn(Value<'k, u32>) -> [Value<'k, f32>; 3] + use<'_, 'k> {
        let Self { k, kind, .. } = self;
        let width = ROWS as u32 + 1;
        let sums = self.lanes.sums().map(|sum| k.warp_sum(sum));
        let squares = (kind.form != Form::Plain).then(|| k.warp_sum(self.lanes.squares()));
        let shared = (kind.split > 1).then(|| {
            let shared = k.shared::<f32>("sums", (WARPS * width) as usize);
            let place = k.warp() * width;
            k.when(k.lane().eq(0), || {
                for (row, sum) in (0..).zip(sums.into_iter().chain(squares)) {
                    shared.store(place + row, sum);
                }
            });
            k.barrier();
            shared
        });
        move |output| {
            let Some(shared) = shared else {
                let pick = |first: usize| {
                    let rows = (first as u32..).zip(&sums[first..]);
                    rows.fold(sums[first], |found, (row, sum)| {
                        (output + first as u32).eq(row).select(*sum, found)
                    })
                };
                return [pick(0), pick(ROWS / 2), squares.unwrap_or(k.constant(0.0))];
            };
            let team = k.warp() * width;
            let total = |row: Value<'k, u32>| {
                let parts = (0..kind.split).map(|part| shared.load(team + row + part * width));
                parts.reduce(|sum, part| sum + part).expect("there is a part")
            };
            let row = k.constant(ROWS as u32);
            let squares = squares.map_or(k.constant(0.0), |_| total(row));
            let gated = matches!(kind.form, Form::Gated);
            let second = if gated { total(output + 2) } else { k.constant(0.0) };
            [total(output), second, squares]
        }
    }
}
