//! Runs launches on a device: the simulated one, or a GPU.
//!
//! `RETROGRAPH_DEVICE` is `sim` (the default), `auto` (a GPU where there is one) or `cuda:N`.
//! `RETROGRAPH_REQUIRE_GPU=1` makes a missing GPU a failure. A buffer is a device address here.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_void};
use std::sync::{Mutex, OnceLock};

use retrograph_driver_sim::{Config, Simulator};
use retrograph_driver_sys::{CUcontext, CUdevice_attribute, CUfunction, CUmodule, CUresult};
use retrograph_driver_sys::{CUstream, DriverTable};
use retrograph_kernels::images;
use retrograph_kernels::{
    Argument, BufferArgument, Cell, Dispatch, Element, Launch, SmTarget, View,
};

/// What unwritten memory holds: a NaN that no arithmetic makes.
pub(crate) const UNWRITTEN: u32 = 0x7fd0_5a5a;

/// The device that all tests of the process share.
struct Machine {
    table: DriverTable,
    context: CUcontext,
    target: SmTarget,
    modules: Mutex<HashMap<&'static str, CUmodule>>,
    /// Keeps the simulated machine alive.
    _simulator: Option<Simulator>,
}

static MACHINE: OnceLock<Machine> = OnceLock::new();

/// Panics with the name of the code when a call failed.
#[track_caller]
fn check(table: &DriverTable, call: &str, code: CUresult) {
    if code == CUresult::CUDA_SUCCESS {
        return;
    }
    let mut text = std::ptr::null();
    // SAFETY: the pointer is valid; the text that comes back is static.
    let named = unsafe { (table.cuGetErrorName)(code, &mut text) } == CUresult::CUDA_SUCCESS;
    // SAFETY: a successful call gives static text that ends in zero.
    let name = if named { unsafe { CStr::from_ptr(text) }.to_string_lossy() } else { "?".into() };
    panic!("{call} returned {} ({name})", code.0);
}

/// Calls a function of the table and checks its code.
macro_rules! call {
    ($table:expr, $function:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: every pointer is to something that outlives the call, which has completed or
        // copied its operands when it returns; handles are live.
        check($table, stringify!($function), unsafe { ($table.$function)($($argument),*) })
    };
}

impl Machine {
    /// The device that the environment asks for.
    fn start() -> Self {
        let required = std::env::var("RETROGRAPH_REQUIRE_GPU").is_ok_and(|value| value == "1");
        let wish = std::env::var("RETROGRAPH_DEVICE");
        let wish = wish.unwrap_or_else(|_| if required { "auto" } else { "sim" }.to_owned());
        let gpu = match wish.as_str() {
            "sim" => Err("the environment asks for the simulator".to_owned()),
            "auto" => Self::gpu(0),
            other => match other.strip_prefix("cuda:").and_then(|index| index.parse().ok()) {
                Some(index) => Ok(Self::gpu(index).unwrap_or_else(|why| panic!("{other}: {why}"))),
                None => panic!("RETROGRAPH_DEVICE is {other}, not sim, auto or cuda:N"),
            },
        };
        gpu.unwrap_or_else(|why| {
            assert!(!required, "a GPU is required, but there is none: {why}");
            let simulator = Simulator::new(Config::default()).expect("a simulated machine");
            Self::open(*simulator.table(), 0, Some(simulator))
        })
    }

    fn gpu(index: i32) -> Result<Self, String> {
        let table = DriverTable::load().map_err(|error| error.to_string())?;
        let mut count = 0;
        // SAFETY: `cuInit` takes 0, and the pointer is valid.
        let codes = unsafe { [(table.cuInit)(0), (table.cuDeviceGetCount)(&mut count)] };
        if codes != [CUresult::CUDA_SUCCESS; 2] || index >= count {
            return Err(format!("{count} devices, {codes:?}"));
        }
        Ok(Self::open(table, index, None))
    }

    fn open(table: DriverTable, index: i32, simulator: Option<Simulator>) -> Self {
        let (mut device, mut context, mut name) = (0, CUcontext::NULL, [0; 128]);
        let (mut major, mut minor) = (0, 0);
        call!(&table, cuInit(0));
        call!(&table, cuDeviceGet(&mut device, index));
        call!(&table, cuDeviceGetName(name.as_mut_ptr(), name.len() as i32, device));
        let [of_major, of_minor] = [
            CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
            CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
        ];
        call!(&table, cuDeviceGetAttribute(&mut major, of_major, device));
        call!(&table, cuDeviceGetAttribute(&mut minor, of_minor, device));
        call!(&table, cuDevicePrimaryCtxRetain(&mut context, device));
        // SAFETY: the call ended the name with a zero.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
        let target = SmTarget::for_device(major as u32, minor as u32).expect("a known device");
        println!("device: {name}, compute capability {major}.{minor}, images for {target}");
        Self { table, context, target, modules: Mutex::default(), _simulator: simulator }
    }

    /// The entry point, from a module that is loaded once per process.
    fn function(&self, image: &'static str, entry: &str) -> CUfunction {
        let mut modules = self.modules.lock().unwrap_or_else(|poison| poison.into_inner());
        let module = *modules.entry(image).or_insert_with(|| {
            let ptx = images::ptx(image, self.target).expect("an image for every kernel");
            let (text, mut module) = (CString::new(ptx).unwrap(), CUmodule::NULL);
            call!(&self.table, cuModuleLoadData(&mut module, text.as_ptr().cast()));
            module
        });
        let (name, mut function) = (CString::new(entry).unwrap(), CUfunction::NULL);
        call!(&self.table, cuModuleGetFunction(&mut function, module, name.as_ptr()));
        function
    }
}

/// Memory of one test on the shared device.
pub(crate) struct Device {
    machine: &'static Machine,
    stream: CUstream,
    allocations: Mutex<Vec<u64>>,
}

impl Device {
    /// Makes the device current on this thread.
    pub(crate) fn new() -> Self {
        let machine = MACHINE.get_or_init(Machine::start);
        let mut stream = CUstream::NULL;
        call!(&machine.table, cuCtxSetCurrent(machine.context));
        // 1: does not synchronize with the legacy stream.
        call!(&machine.table, cuStreamCreate(&mut stream, 1));
        Self { machine, stream, allocations: Mutex::default() }
    }

    /// What images are chosen for.
    pub(crate) fn target(&self) -> SmTarget {
        self.machine.target
    }

    /// A buffer with these elements.
    pub(crate) fn upload<T: Element>(&self, elements: &[T]) -> View<u64, T> {
        let bytes: &[u8] = bytemuck::cast_slice(elements);
        let mut address = 0;
        call!(&self.machine.table, cuMemAlloc_v2(&mut address, bytes.len().max(4)));
        self.allocations.lock().unwrap().push(address);
        if !bytes.is_empty() {
            let (source, table) = (bytes.as_ptr().cast::<c_void>(), &self.machine.table);
            // On the stream of the launches: a copy by the legacy stream is not ordered with it.
            call!(table, cuMemcpyHtoDAsync_v2(address, source, bytes.len(), self.stream));
            call!(table, cuStreamSynchronize(self.stream));
        }
        View::new(address, elements.len())
    }

    /// A buffer that nothing has been written to.
    pub(crate) fn unwritten(&self, len: usize) -> View<u64, f32> {
        self.upload(&vec![f32::from_bits(UNWRITTEN); len])
    }

    /// The elements of a view.
    pub(crate) fn download<T: Element>(&self, view: View<u64, T>) -> Vec<T> {
        let mut elements = vec![T::zeroed(); view.len()];
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut elements);
        if !bytes.is_empty() {
            let (to, from) = (bytes.as_mut_ptr().cast::<c_void>(), address(view));
            let table = &self.machine.table;
            call!(table, cuMemcpyDtoHAsync_v2(to, from, bytes.len(), self.stream));
            call!(table, cuStreamSynchronize(self.stream));
        }
        elements
    }

    /// Runs a launch and waits for it.
    #[track_caller]
    pub(crate) fn run(&self, launch: &Launch<u64>) {
        self.run_as(launch, launch.dispatch(self.machine.target));
    }

    /// Runs a launch with another entry point or geometry than its own, and waits for it.
    #[track_caller]
    pub(crate) fn run_as(&self, launch: &Launch<u64>, dispatch: Dispatch) {
        let kernel = launch.kernel;
        assert!(kernel.entries.contains(&dispatch.entry), "{kernel:?} has no {}", dispatch.entry);
        assert_eq!(kernel.parameters.len(), launch.arguments.len(), "{kernel:?}");
        if dispatch.is_empty() {
            return;
        }
        let mut values: Vec<[u8; 8]> = launch.arguments.iter().map(|a| self.value(a)).collect();
        let mut pointers: Vec<*mut c_void> =
            values.iter_mut().map(|value| value.as_mut_ptr().cast()).collect();
        let function = self.machine.function(kernel.image, dispatch.entry);
        let ([gx, gy, gz], [bx, by, bz]) = (dispatch.grid, dispatch.block);
        let (shared, table) = (dispatch.shared_bytes, &self.machine.table);
        let parameters = pointers.as_mut_ptr();
        let extra = std::ptr::null_mut();
        call!(
            table,
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
        call!(table, cuStreamSynchronize(self.stream));
    }

    /// The bytes of an argument; only as many as its parameter has are read.
    fn value(&self, argument: &Argument<u64>) -> [u8; 8] {
        let pointer =
            |argument: &BufferArgument<u64>| argument.buffer + argument.bytes.start as u64;
        match argument {
            Argument::Buffer(buffer) => pointer(buffer),
            Argument::Null => 0,
            Argument::U32(value) | Argument::F32(value) => u64::from(*value),
            Argument::U64(value) => *value,
            Argument::Table(cells) => {
                let cell = |cell: &Cell<u64>| match cell {
                    Cell::Address(buffer) => pointer(buffer),
                    Cell::Word(word) => *word,
                };
                address(self.upload(&cells.iter().map(cell).collect::<Vec<u64>>()))
            }
        }
        .to_le_bytes()
    }
}

/// The address of the first element.
fn address<T: Element>(view: View<u64, T>) -> u64 {
    view.buffer() + view.byte_range().start as u64
}

impl Drop for Device {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        for &address in self.allocations.lock().unwrap().iter() {
            call!(&self.machine.table, cuMemFree_v2(address));
        }
        call!(&self.machine.table, cuStreamDestroy_v2(self.stream));
    }
}
