//! Runs launches on a device: the simulated one, or a GPU.
//!
//! `RETROGRAPH_DEVICE` is `sim` (the default), `auto` (a GPU if there is one) or `cuda:N`.
//! `RETROGRAPH_REQUIRE_GPU=1` makes a missing GPU a failure. A buffer is a device address here.

use std::ffi::c_void;
use std::sync::{Arc, Mutex};

use half::bf16;
use retrograph_driver_sim::{Config, Diagnostic};
use retrograph_driver_sys::{CUresult, CUstream};
use retrograph_kernels::ops::TensorView;
use retrograph_kernels::{Argument, Cell, Dispatch, Element, Launch, SmTarget, View};

use crate::argument_bytes::{self, Bytes};
use crate::machine::{Machine, call};
use crate::support::numbers::filled;

/// The contents of unwritten memory: a NaN that arithmetic does not produce.
pub(crate) const UNWRITTEN: u32 = 0x7fd0_5a5a;

/// Memory of one test on a device.
pub(crate) struct Device {
    machine: Arc<Machine>,
    /// Whether other tests may use the machine afterwards.
    is_shared: bool,
    target: SmTarget,
    stream: CUstream,
    allocations: Mutex<Vec<u64>>,
}

impl Device {
    /// Makes the device current on this thread.
    pub(crate) fn new() -> Self {
        Self::on(Machine::take(), None)
    }

    /// The same with images for `target`, which the device must be able to run.
    pub(crate) fn with_images_for(target: SmTarget) -> Self {
        Self::on(Machine::take(), Some(target))
    }

    /// A simulated device of its own, on which the image for `target` has this text.
    pub(crate) fn with_edited_image(
        image: &'static str,
        target: SmTarget,
        text: &str,
        config: Config,
    ) -> Self {
        let machine = Arc::new(Machine::edited(image, target, text, config));
        let mut device = Self::on(machine, Some(target));
        device.is_shared = false;
        device
    }

    fn on(machine: Arc<Machine>, target: Option<SmTarget>) -> Self {
        let mut stream = CUstream::NULL;
        call!(machine.driver, cuCtxSetCurrent(machine.context));
        // 1: CU_STREAM_NON_BLOCKING.
        call!(machine.driver, cuStreamCreate(&mut stream, 1));
        let target = target.unwrap_or(machine.target);
        Self { machine, is_shared: true, target, stream, allocations: Mutex::default() }
    }

    /// The SM target of images.
    pub(crate) fn target(&self) -> SmTarget {
        self.target
    }

    /// A buffer with these elements.
    pub(crate) fn upload<T: Element>(&self, elements: &[T]) -> View<u64, T> {
        let bytes: &[u8] = bytemuck::cast_slice(elements);
        let mut address = 0;
        call!(self.machine.driver, cuMemAlloc_v2(&mut address, bytes.len().max(4)));
        self.allocations.lock().unwrap().push(address);
        if !bytes.is_empty() {
            let (source, driver) = (bytes.as_ptr().cast::<c_void>(), &self.machine.driver);
            // On the stream of the launches, because a copy on the legacy stream is not ordered
            // with it.
            call!(driver, cuMemcpyHtoDAsync_v2(address, source, bytes.len(), self.stream));
            call!(driver, cuStreamSynchronize(self.stream));
        }
        View::new(address, elements.len())
    }

    /// These elements rounded to bf16, as f32 and as bf16, `shift` elements into a buffer each.
    pub(crate) fn upload_in_both(&self, elements: &[f32], shift: usize) -> [TensorView<u64>; 2] {
        let padding = vec![f32::NAN; shift].into_iter();
        let rounded: Vec<_> = padding.chain(elements.iter().copied()).map(bf16::from_f32).collect();
        let plain: Vec<_> = rounded.iter().map(|element| element.to_f32()).collect();
        let range = shift..rounded.len();
        let plain = self.upload(&plain).slice(range.clone());
        [plain.into(), self.upload(&rounded).slice(range).into()]
    }

    /// An unwritten buffer.
    pub(crate) fn unwritten(&self, len: usize) -> View<u64, f32> {
        self.upload(&filled(f32::from_bits(UNWRITTEN), len))
    }

    /// The elements of a view.
    pub(crate) fn download<T: Element>(&self, view: View<u64, T>) -> Vec<T> {
        let mut elements = vec![T::zeroed(); view.len()];
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut elements);
        if !bytes.is_empty() {
            let (to, from) = (bytes.as_mut_ptr().cast::<c_void>(), address(view));
            let driver = &self.machine.driver;
            call!(driver, cuMemcpyDtoHAsync_v2(to, from, bytes.len(), self.stream));
            call!(driver, cuStreamSynchronize(self.stream));
        }
        elements
    }

    /// Runs a launch and waits for it.
    #[track_caller]
    pub(crate) fn run(&self, launch: &Launch<u64>) {
        self.run_as(launch, launch.dispatch(self.target));
    }

    /// Runs a launch of attention, with at most `blocks` blocks if they are persistent.
    #[track_caller]
    pub(crate) fn run_in_blocks(&self, launch: &Launch<u64>, blocks: u32) {
        let mut dispatch = launch.dispatch(self.target);
        if dispatch.persistent.is_some() {
            dispatch.grid[0] = dispatch.grid[0].min(blocks);
        }
        self.run_as(launch, dispatch);
    }

    /// Runs a launch with another entry point or geometry than its own, and waits for it.
    #[track_caller]
    pub(crate) fn run_as(&self, launch: &Launch<u64>, dispatch: Dispatch) {
        self.enqueue(launch, dispatch);
        call!(self.machine.driver, cuStreamSynchronize(self.stream));
    }

    /// The same on a device of [`Machine::edited`], which is not used again. Returns the diagnostic
    /// of a failure.
    pub(crate) fn run_edited(
        &self,
        launch: &Launch<u64>,
        dispatch: Dispatch,
    ) -> Option<Diagnostic> {
        self.enqueue(launch, dispatch);
        // SAFETY: the stream is live.
        let code = unsafe { (self.machine.driver.table.cuStreamSynchronize)(self.stream) };
        let diagnostic = self.machine.driver.first_diagnostic();
        assert_eq!(code == CUresult::CUDA_SUCCESS, diagnostic.is_none(), "{diagnostic:?}");
        diagnostic
    }

    #[track_caller]
    fn enqueue(&self, launch: &Launch<u64>, dispatch: Dispatch) {
        let kernel = launch.kernel();
        assert!(kernel.entries.contains(&dispatch.entry), "{kernel:?} has no {}", dispatch.entry);
        assert_eq!(kernel.parameters.len(), launch.arguments().len(), "{kernel:?}");
        if dispatch.is_empty() {
            return;
        }
        let mut values: Vec<Bytes> = launch.arguments().iter().map(|a| self.value(a)).collect();
        let mut pointers: Vec<*mut c_void> =
            values.iter_mut().map(|value| std::ptr::from_mut(value).cast()).collect();
        let function = self.machine.function(kernel.image, self.target, dispatch.entry);
        let ([gx, gy, gz], [bx, by, bz]) = (dispatch.grid, dispatch.block);
        let (shared, driver) = (dispatch.shared_bytes, &self.machine.driver);
        let parameters = pointers.as_mut_ptr();
        let extra = std::ptr::null_mut();
        call!(
            driver,
            cuLaunchKernel(
                function,
                gx,
                gy,
                gz,
                bx,
                by,
                bz,
                shared,
                self.stream,
                parameters,
                extra
            )
        );
    }

    /// The bytes of an argument.
    fn value(&self, argument: &Argument<u64>) -> Bytes {
        argument_bytes::bytes(&self.machine.driver.table, argument, |cells| {
            let cell = |cell: &Cell<u64>| match cell {
                Cell::Address(buffer) => argument_bytes::address(buffer),
                Cell::Word(word) => *word,
            };
            address(self.upload(&cells.iter().map(cell).collect::<Vec<u64>>()))
        })
    }
}

/// The address of the first element.
fn address<T: Element>(view: View<u64, T>) -> u64 {
    view.buffer() + view.byte_range().start as u64
}

impl Drop for Device {
    fn drop(&mut self) {
        if std::thread::panicking() || !self.is_shared {
            return;
        }
        for &address in self.allocations.lock().unwrap().iter() {
            call!(self.machine.driver, cuMemFree_v2(address));
        }
        call!(self.machine.driver, cuStreamDestroy_v2(self.stream));
        Arc::clone(&self.machine).give_back();
    }
}
