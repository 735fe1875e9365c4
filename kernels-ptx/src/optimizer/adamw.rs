//! AdamW over a list of tensors, in place:
//!
//! ```text
//! grad   = grad_scale · grad
//! first  = β1 · first  + (1 − β1) · grad
//! second = β2 · second + (1 − β2) · grad²
//! param  = param − lr · weight_decay · param
//! param  = param − lr / (1 − β1^t) · first / (sqrt(second) / sqrt(1 − β2^t) + eps)
//! ```
//! Source: Loshchilov and Hutter, "Decoupled Weight Decay Regularization" (2019), in the order of
//! `torch.optim.AdamW`. The scalars `lr`, `lr / (1 − β1^t)` and `1 / sqrt(1 − β2^t)` come from
//! `lr_schedule`. If `halt` is given and not 0, the kernel changes nothing.
//!
//! `grad_scale` is the factor of `clip_factor`, or 1 if it is null. If it is 0, gradients count as
//! 0, because 0 times NaN or infinity is NaN.
//!
//! If `copy` is not null, it gets the new parameter as bf16, rounded to nearest even.
//!
//! Grid: one block per chunk. Its row of the table is `[param, grad, first, second, copy, elements,
//! bits of weight_decay, whether grad is bf16]`. The other arrays except copy are f32.
//! Deterministic: one thread computes each element.

use retrograph_kernel_abi::optimizer::{ADAMW, ADAMW_ROW, AdamWParameters, CHUNK_THREADS, scalar};
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::{Kernel, ModuleBuilder, Value};

use crate::primitives::output::Output;
use crate::primitives::parameters::Declarations;
use crate::primitives::tensor_list::Chunk;

/// Builds the image.
pub(crate) fn module(target: SmTarget) -> Module {
    ModuleBuilder::new(target).entry(Kernel::build(ADAMW.entry(), |k| adamw(k, target))).build()
}

/// Values that are the same for every element of a chunk.
#[derive(Clone, Copy)]
struct Constants<'k> {
    beta1: Value<'k, f32>,
    one_minus_beta1: Value<'k, f32>,
    beta2: Value<'k, f32>,
    one_minus_beta2: Value<'k, f32>,
    eps: Value<'k, f32>,
    /// `−lr · weight_decay`.
    decay: Value<'k, f32>,
    /// `lr / (1 − β1^t)`.
    step_size: Value<'k, f32>,
    /// `1 / sqrt(1 − β2^t)`.
    root_scale: Value<'k, f32>,
}

fn adamw(k: &Kernel<'_>, target: SmTarget) {
    let parameters = AdamWParameters::declare(&mut Declarations(*k));
    let AdamWParameters { table, scalars, halt, grad_scale, eps, .. } = parameters;
    let AdamWParameters { beta1, one_minus_beta1, beta2, one_minus_beta2, .. } = parameters;
    k.max_threads(CHUNK_THREADS);

    let halted = k.var(0_u32);
    k.when(!halt.is_null(), || halted.set(halt.load(0)));
    k.return_if(halted.get().ne(0));

    let scale = k.var(1.0);
    k.when(!grad_scale.is_null(), || scale.set(grad_scale.load(0)));
    let scale = scale.get();
    let no_grad = scale.eq(0.0);

    let chunk = Chunk::<{ ADAMW_ROW.arrays }>::read(k, table, ADAMW_ROW);
    let weight_decay = Value::<f32>::from_bits(chunk.constant(0).cast::<u32>());
    let decay = -(scalars.load(scalar::LR) * weight_decay);
    let (step_size, root_scale) =
        (scalars.load(scalar::STEP_SIZE), scalars.load(scalar::ROOT_SCALE));
    let constants = Constants {
        beta1,
        one_minus_beta1,
        beta2,
        one_minus_beta2,
        eps,
        decay,
        step_size,
        root_scale,
    };
    chunk.for_each_vec4_as(1, |dtype, vec4| {
        let [params, grads, firsts, seconds, copies] = chunk.arrays;
        let [param, first, second] = [params, firsts, seconds].map(|array| vec4.load(array));
        let grad = vec4.load_as(dtype, grads.address());
        let grad = grad.map(|grad| no_grad.select(0.0, grad * scale));
        let updated =
            [0, 1, 2, 3].map(|i| constants.update([param[i], grad[i], first[i], second[i]]));
        let copied = Output { f32: params, bf16: copies.reinterpret() };
        vec4.write(target, copied, updated.map(|[param, ..]| param));
        vec4.store(firsts, updated.map(|[_, first, _]| first));
        vec4.store(seconds, updated.map(|[.., second]| second));
    });
}

impl<'k> Constants<'k> {
    /// The updated parameter, first moment and second moment.
    fn update(&self, [param, grad, first, second]: [Value<'k, f32>; 4]) -> [Value<'k, f32>; 3] {
        let first = self.one_minus_beta1.fma(grad, self.beta1 * first);
        let second = (self.one_minus_beta2 * grad).fma(grad, self.beta2 * second);
        let root = second.sqrt().fma(self.root_scale, self.eps);
        let decayed = self.decay.fma(param, param);
        [(-self.step_size).fma(first / root, decayed), first, second]
    }
}
