//! A small training pass for tests: two layers with SiLU, cross-entropy, clipping and AdamW.

use retrograph_kernels::ops::{
    AdamW, AdamWTensor, ClipFactor, ClipGrads, ColumnSum, CrossEntropy, Decay, Dgrad, Fprop,
    GemmShape, GradLogits, GradNormPartials, Guard, LrSchedule, Mean, Silu, SiluBackward, Wgrad,
    grad_norm_partials_len,
};
use retrograph_runtime::{
    Bindings, BufferId, Controls, DeviceBuffer, Pass, PassError, Program, Slice, Stream,
};

const ROWS: usize = 6;
const INPUTS: usize = 5;
const INNER: usize = 9;
const CLASSES: usize = 7;
/// Values of the two weights and the bias, one after the other.
const LENGTHS: [usize; 3] = [INNER * INPUTS, INNER, CLASSES * INNER];

/// The pass, its external buffers and its controls.
pub(crate) struct Mlp {
    pub(crate) pass: Pass,
    x: Slice<f32>,
    targets: Slice<u32>,
    counted: Slice<u32>,
    step: Slice<u32>,
    parameters: [Parameter; 3],
    loss: Slice<f32>,
    halt: Slice<u32>,
}

#[derive(Clone, Copy)]
struct Parameter {
    value: Slice<f32>,
    grad: Slice<f32>,
    first: Slice<f32>,
    second: Slice<f32>,
}

/// Device memory for the externals of an [`Mlp`].
pub(crate) struct MlpBuffers {
    tensors: Vec<DeviceBuffer<f32>>,
    loss: DeviceBuffer<f32>,
    halt: DeviceBuffer<u32>,
}

impl Mlp {
    /// Describes the pass.
    pub(crate) fn new() -> Self {
        let mut pass = Pass::new("mlp");
        let names = ["w1", "b1", "w2"];
        let parameters = std::array::from_fn(|at| {
            let (name, len) = (names[at], LENGTHS[at]);
            Parameter {
                value: pass.external(name, len),
                grad: pass.transient(format!("grad {name}"), len),
                first: pass.external(format!("first {name}"), len),
                second: pass.external(format!("second {name}"), len),
            }
        });
        let x = pass.control_array("x", ROWS * INPUTS);
        let targets = pass.control_array("targets", ROWS);
        let (step, counted) = (pass.control("step"), pass.control("counted"));
        let (loss, halt) = (pass.external("loss", 1), pass.external("halt", 1));
        let mut mlp = Self { pass, x, targets, counted, step, parameters, loss, halt };
        mlp.describe().unwrap();
        mlp
    }

    fn describe(&mut self) -> Result<(), PassError> {
        let [w1, b1, w2] = self.parameters;
        let pass = &mut self.pass;
        let shape1 = GemmShape { rows: ROWS, inputs: INPUTS, outputs: INNER };
        let shape2 = GemmShape { rows: ROWS, inputs: INNER, outputs: CLASSES };
        let inner = pass.transient("inner", ROWS * INNER);
        let active = pass.transient::<f32>("active", ROWS * INNER);
        let logits = pass.transient::<f32>("logits", ROWS * CLASSES);
        let losses = pass.transient("losses", ROWS);
        let (alpha, accumulate) = (1.0, false);
        pass.set_scope("forward");
        let (x, bias) = (self.x, Some(b1.value));
        let fprop = Fprop { x, w: w1.value, bias, y: inner, shape: shape1, alpha, accumulate };
        pass.launch(fprop.launch()?)?;
        pass.launch(Silu { x: inner, y: active }.launch()?)?;
        let (x, bias, shape) = (active, None, shape2);
        pass.launch(Fprop { x, w: w2.value, bias, y: logits, shape, alpha, accumulate }.launch()?)?;
        let (targets, counted) = (self.targets, self.counted);
        let (rows, vocab) = (ROWS, CLASSES);
        let grad_logits = GradLogits::InPlace;
        let entropy = CrossEntropy {
            logits,
            targets,
            losses,
            order: None,
            grad_logits,
            counted,
            rows,
            vocab,
            softcap: None,
        };
        pass.launch(entropy.launch()?)?;
        pass.launch(Mean { x: losses, counted, out: self.loss }.launch()?)?;

        pass.set_scope("backward");
        let grad_active = pass.transient("grad active", ROWS * INNER);
        let grad_inner = pass.transient("grad inner", ROWS * INNER);
        let (grad_out, x, grad_weight) = (logits, active, w2.grad);
        pass.launch(Wgrad { grad_out, x, grad_weight, shape, alpha, accumulate }.launch()?)?;
        let (w, grad_input) = (w2.value, grad_active);
        pass.launch(Dgrad { grad_out, w, grad_input, shape, alpha, accumulate }.launch()?)?;
        let (grad_out, grad_input) = (grad_active, grad_inner);
        pass.launch(SiluBackward { x: inner, grad_out, grad_input }.launch()?)?;
        let (grad_out, x, grad_weight, shape) = (grad_inner, self.x, w1.grad, shape1);
        pass.launch(Wgrad { grad_out, x, grad_weight, shape, alpha, accumulate }.launch()?)?;
        let (x, out) = (grad_inner, b1.grad);
        pass.launch(ColumnSum { x, out, rows: ROWS, columns: INNER, accumulate: false }.launch()?)?;
        self.describe_update()
    }

    fn describe_update(&mut self) -> Result<(), PassError> {
        let pass = &mut self.pass;
        pass.set_scope("update");
        let grads = self.parameters.map(|parameter| parameter.grad);
        let partials = pass.transient::<f64>("partials", grad_norm_partials_len(&LENGTHS));
        let scale = pass.transient("scale", 1);
        let norm = pass.transient("norm", 1);
        let scalars = pass.transient("scalars", LrSchedule::<BufferId>::SCALARS);
        pass.launch(GradNormPartials { tensors: &grads, partials }.launch()?)?;
        let guard = Some(Guard { loss: self.loss, step: self.step, halt: self.halt });
        pass.launch(ClipFactor { partials, max_norm: 0.5, scale, norm, guard }.launch()?)?;
        pass.launch(ClipGrads { tensors: &grads, scale }.launch()?)?;
        let schedule = LrSchedule {
            step: self.step,
            scalars,
            peak_lr: 0.05,
            min_lr: 0.001,
            warmup_steps: 3,
            decay_start: 3,
            total_steps: 30,
            decay: Decay::Cosine,
            beta1: 0.9,
            beta2: 0.99,
        };
        pass.launch(schedule.launch()?)?;
        let tensors = self.parameters.map(|held| AdamWTensor {
            param: held.value,
            grad: held.grad.into(),
            exp_avg: held.first,
            exp_avg_sq: held.second,
            copy: None,
            weight_decay: 0.01,
        });
        let (halt, grad_scale) = (Some(self.halt), None);
        let (beta1, beta2, eps) = (0.9, 0.99, 1e-8);
        let adamw = AdamW { tensors: &tensors, scalars, halt, grad_scale, beta1, beta2, eps };
        pass.launch(adamw.launch()?)?;
        Ok(())
    }

    /// Fresh memory with the same initial values each time.
    pub(crate) fn buffers(&self, stream: &Stream) -> MlpBuffers {
        let mut tensors = Vec::new();
        for (at, len) in LENGTHS.into_iter().enumerate() {
            let value = |index: usize| ((index * 37 + at * 11) % 23) as f32 / 23.0 - 0.5;
            let values: Vec<f32> = (0..len).map(value).collect();
            tensors.push(DeviceBuffer::from_slice(stream, &values).unwrap());
            for _ in 0..2 {
                tensors.push(DeviceBuffer::zeroed(stream.context(), len).unwrap());
            }
        }
        let loss = DeviceBuffer::zeroed(stream.context(), 1).unwrap();
        let halt = DeviceBuffer::zeroed(stream.context(), 1).unwrap();
        MlpBuffers { tensors, loss, halt }
    }

    /// Binds every external.
    pub(crate) fn bindings(&self, buffers: &MlpBuffers) -> Bindings {
        let mut bindings = Bindings::new();
        for (parameter, tensors) in self.parameters.iter().zip(buffers.tensors.chunks(3)) {
            bindings.bind(parameter.value, &tensors[0]);
            bindings.bind(parameter.first, &tensors[1]).bind(parameter.second, &tensors[2]);
        }
        bindings.bind(self.loss, &buffers.loss).bind(self.halt, &buffers.halt);
        bindings
    }

    /// Binds the loss, which two launches name, and the first moments of a tensor, which only a
    /// table names.
    pub(crate) fn some(&self, loss: bool, moments: bool, buffers: &MlpBuffers) -> Bindings {
        let mut bindings = Bindings::new();
        if loss {
            bindings.bind(self.loss, &buffers.loss);
        }
        if moments {
            bindings.bind(self.parameters[0].first, &buffers.tensors[1]);
        }
        bindings
    }

    /// The controls of step `step`: other data each step.
    pub(crate) fn controls(&self, step: u32) -> Controls {
        let value = |at: usize| ((at * 13 + step as usize * 7) % 17) as f32 / 17.0 - 0.5;
        let x: Vec<f32> = (0..ROWS * INPUTS).map(value).collect();
        let targets: Vec<u32> = (0..ROWS as u32).map(|row| (row + step) % 3).collect();
        let mut controls = self.pass.controls();
        controls.set_array(self.x, &x).unwrap();
        controls.set_array(self.targets, &targets).unwrap();
        controls.set(self.counted, ROWS as u32).unwrap();
        controls.set(self.step, step).unwrap();
        controls
    }

    /// Does `steps` steps and returns the bits of the loss of each and of all state at the end.
    pub(crate) fn train(
        &self,
        program: &mut Program,
        stream: &Stream,
        buffers: &MlpBuffers,
        steps: std::ops::Range<u32>,
    ) -> Vec<u32> {
        let mut bits = Vec::new();
        for step in steps {
            program.step(stream, &self.controls(step)).unwrap();
            bits.extend(buffers.loss.download(stream).unwrap().iter().map(|loss| loss.to_bits()));
        }
        bits.extend(buffers.state(stream));
        bits
    }
}

impl MlpBuffers {
    /// The buffer of the loss.
    pub(crate) fn loss(&self) -> DeviceBuffer<f32> {
        self.loss.clone()
    }

    /// The bits of all parameters and moments, and the halt flag.
    pub(crate) fn state(&self, stream: &Stream) -> Vec<u32> {
        let mut bits = self.halt.download(stream).unwrap();
        for tensor in &self.tensors {
            bits.extend(tensor.download(stream).unwrap().iter().map(|value| value.to_bits()));
        }
        bits
    }
}
