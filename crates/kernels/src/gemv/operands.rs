//! What every launch of matrices times a vector has, and its checks.

use std::ops::Range;

use super::{GEMV, GEMV_BF16, GEMV_NF4, GEMV_PARTS, GemvPart, Normed};
use crate::checks::Check;
use crate::tensor::Stored;
use crate::{Access, Argument, BufferArgument, Kernel, KernelError, Launch, Problem, View};

/// The largest extent, so that the end of a run that starts inside has an index of 32 bits.
const LONGEST: usize = 0x7fff_ffff;
/// y is added to.
const ACCUMULATE: u32 = 1;
/// x and w are read in aligned vectors.
const VECTORS: u32 = 2;

/// What is made of the sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Plain,
    Norm,
    Gated,
}

impl Form {
    /// In the order of the entries of a kernel.
    pub(crate) const ALL: [Self; 3] = [Self::Plain, Self::Norm, Self::Gated];
}

/// The operands of a launch. The two parts of a gated one have the same y.
#[derive(Clone, Copy)]
pub(crate) struct Operands<'a, B> {
    pub(crate) x: View<B, f32>,
    pub(crate) norm: Option<Normed<B>>,
    pub(crate) parts: &'a [GemvPart<B>],
    pub(crate) lows: &'a [[View<B, f32>; 2]],
    pub(crate) form: Form,
    pub(crate) alpha: f32,
    pub(crate) accumulate: bool,
    pub(crate) next: Option<Stored<B>>,
}

impl<'a, B: Copy> Operands<'a, B> {
    /// Products without anything further.
    pub(crate) fn of(x: View<B, f32>, parts: &'a [GemvPart<B>]) -> Self {
        let (norm, form, alpha, accumulate) = (None, Form::Plain, 1.0, false);
        Self { x, norm, parts, lows: &[], form, alpha, accumulate, next: None }
    }

    pub(crate) fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { x, norm, parts, lows, form, alpha, accumulate, next } = self;
        let (kernel, unit) = match parts.first().map(|part| part.w) {
            Some(Stored::Bf16(_)) => (&GEMV_BF16, 8),
            Some(Stored::Nf4(_)) => (&GEMV_NF4, 8),
            _ => (&GEMV, 4),
        };
        let check = Check(kernel.name);
        let inputs = check.at_most("inputs", x.len(), LONGEST)?;
        let sizes = self.check(check, kernel)?;
        let start = x.byte_range().start;
        let aligned = |view: View<B, f32>| view.byte_range().start.is_multiple_of(16);
        let stored = |part: &GemvPart<B>| part.w.in_vectors(&[x.len()]);
        let vectors = aligned(x)
            && inputs % unit == 0
            && parts.iter().all(stored)
            && norm.is_none_or(|norm| aligned(norm.gamma))
            && lows.iter().all(|[a, _]| aligned(*a));
        let rule = "x, gamma and matrices in f32 start at a multiple of 16 bytes where w is in NF4";
        check.rule(vectors || kernel != &GEMV_NF4, rule, (start, x.len()))?;
        let flags = if accumulate { ACCUMULATE } else { 0 } | if vectors { VECTORS } else { 0 };
        let gamma = norm.map_or(Argument::Null, |norm| Argument::read(norm.gamma));
        let mut arguments = vec![Argument::read(x), gamma];
        for at in 0..GEMV_PARTS {
            // The second part of a gated launch writes nothing of its own.
            let writes = form != Form::Gated || at == 0;
            self.push_part(&mut arguments, (kernel, parts.get(at)), writes);
        }
        for at in 0..GEMV_PARTS {
            let low = lows.get(at).map(|[a, y]| [Argument::read(*a).ahead(), Argument::write(*y)]);
            arguments.extend(low.unwrap_or([Argument::Null, Argument::Null]));
        }
        let (next, next_bytes) = next.map_or((Argument::Null, 0), asked_for);
        arguments.extend([next, Argument::U32(inputs)]);
        arguments.extend(sizes.map(Argument::U32));
        let eps = norm.map_or(0.0, |norm| norm.eps);
        arguments.extend([eps, alpha].map(Argument::f32));
        arguments.extend([flags, next_bytes].map(Argument::U32));
        let [a, b, c, d, e, f] = sizes;
        let problem = Problem::from([inputs, a, b, c, d, e, f, form as u32]);
        Ok(Launch { kernel, problem, arguments })
    }

    /// Checks all lengths, and gives the outputs of each matrix.
    fn check(self, check: Check, kernel: &Kernel) -> Result<[u32; 6], KernelError> {
        let Self { x, norm, parts, lows, .. } = self;
        let counts = (parts.len(), lows.len());
        let fits = (1..=GEMV_PARTS).contains(&counts.0) && counts.1 <= GEMV_PARTS;
        check.rule(fits, "there are one to three layers, and up to three in f32 beside", counts)?;
        let rule = "there is nothing in f32 beside layers in NF4";
        check.rule(lows.is_empty() || kernel != &GEMV_NF4, rule, counts)?;
        if let Some(Normed { gamma, eps }) = norm {
            check.length("gamma", gamma, x.len())?;
            check.constant("eps", eps, (eps >= 0.0, "not negative"))?;
            check.rule(!x.is_empty(), "a norm is of at least one element", (x.len(), 1))?;
        }
        let mut sizes = [0; 2 * GEMV_PARTS];
        for (size, GemvPart { w, bias, y }) in sizes.iter_mut().zip(parts) {
            *size = check.at_most("outputs", y.len(), LONGEST)?;
            let elements = check.product("outputs × inputs", &[y.len(), x.len()])?;
            check.elements("w", w.len(), elements)?;
            w.check(check, &[x.len()])?;
            let same = std::mem::discriminant(w) == std::mem::discriminant(&parts[0].w);
            let rule = "all layers of a launch are stored in the same way";
            check.rule(same, rule, (parts.len(), kernel.entries.len()))?;
            if let Some(bias) = bias {
                check.length("bias", *bias, y.len())?;
            }
        }
        for (size, [a, y]) in sizes[GEMV_PARTS..].iter_mut().zip(lows) {
            *size = check.at_most("outputs in f32", y.len(), LONGEST)?;
            let elements = check.product("outputs × inputs in f32", &[y.len(), x.len()])?;
            check.length("a matrix in f32", *a, elements)?;
        }
        Ok(sizes)
    }

    /// Matrix, bias, output and scales of one part, or as many nulls.
    fn push_part(
        &self,
        arguments: &mut Vec<Argument<B>>,
        (kernel, part): (&Kernel, Option<&GemvPart<B>>),
        writes: bool,
    ) {
        let scales = if kernel == &GEMV_NF4 { 4 } else { 0 };
        let Some(GemvPart { w, bias, y }) = part else {
            arguments.extend((0..3 + scales).map(|_| Argument::Null));
            return;
        };
        let access = if self.accumulate { Access::ReadWrite } else { Access::Write };
        let y = Argument::Buffer(BufferArgument::new(*y, access));
        let (w, scales) = w.arguments();
        let bias = bias.map_or(Argument::Null, Argument::read);
        arguments.extend([w.ahead(), bias, if writes { y } else { Argument::Null }]);
        arguments.extend(scales.into_iter().map(Argument::ahead));
    }
}

/// Where the weights that are read next lie, and how many bytes they have: none where they cannot
/// be asked for. Of their bytes the launch touches none, since no result depends on them.
fn asked_for<B: Copy>(next: Stored<B>) -> (Argument<B>, u32) {
    let (Argument::Buffer(mut held), _) = next.arguments() else { return (Argument::Null, 0) };
    let Range { start, end } = held.bytes;
    if !start.is_multiple_of(16) {
        return (Argument::Null, 0);
    }
    held.bytes = start..start;
    (Argument::Buffer(held), u32::try_from(end - start).unwrap_or(u32::MAX))
}
