//! Devices of the process, through their driver functions.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::sync::{Arc, Mutex, OnceLock};

use retrograph_driver_sim::{Config, Diagnostic, Simulator};
use retrograph_driver_sys::DriverTable;
use retrograph_driver_sys::{
    CUcontext, CUdevice_attribute, CUfunction, CUfunction_attribute, CUmodule, CUresult,
};
use retrograph_kernels::{SmTarget, images};

/// A GPU, which all tests of the process share, or a simulated device, which one test uses at a
/// time: a simulator runs one kernel at a time.
pub(crate) struct Machine {
    pub(crate) driver: Functions,
    pub(crate) context: CUcontext,
    pub(crate) target: SmTarget,
    modules: Mutex<HashMap<(&'static str, SmTarget), CUmodule>>,
}

/// The functions of a driver.
pub(crate) struct Functions {
    pub(crate) table: DriverTable,
    /// Keeps the simulated machine alive.
    simulator: Option<Simulator>,
}

impl Functions {
    /// Panics with the name of the code when a call failed.
    #[track_caller]
    pub(crate) fn check(&self, call: &str, code: CUresult) {
        if code == CUresult::CUDA_SUCCESS {
            return;
        }
        let mut text = std::ptr::null();
        // SAFETY: the pointer is valid; the returned text is static.
        let found = unsafe { (self.table.cuGetErrorName)(code, &mut text) };
        let name = match found {
            // SAFETY: a successful call gives static text that ends in zero.
            CUresult::CUDA_SUCCESS => unsafe { CStr::from_ptr(text) }.to_string_lossy(),
            _ => "?".into(),
        };
        let cause = self.first_diagnostic().map(|it| it.to_string()).unwrap_or_default();
        panic!("{call} returned {} ({name}) {cause}", code.0);
    }

    /// The first diagnostic of the simulator, which is the cause of later ones.
    pub(crate) fn first_diagnostic(&self) -> Option<Diagnostic> {
        self.simulator.as_ref()?.diagnostics().into_iter().next()
    }
}

/// Simulated devices that no test uses now, with their modules.
static IDLE: Mutex<Vec<Arc<Machine>>> = Mutex::new(Vec::new());

/// Calls a function of a driver and checks its code.
macro_rules! call {
    ($driver:expr, $function:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: every pointer is valid for the duration of the call, which has completed or
        // copied its operands when it returns; handles are live.
        let code = unsafe { ($driver.table.$function)($($argument),*) };
        $driver.check(stringify!($function), code)
    };
}

impl Machine {
    /// Takes a device for a test: the GPU that the environment selects, or a simulated one.
    pub(crate) fn take() -> Arc<Self> {
        static GPU: OnceLock<Option<Arc<Machine>>> = OnceLock::new();
        if let Some(gpu) = GPU.get_or_init(|| Self::selected().map(Arc::new)) {
            return Arc::clone(gpu);
        }
        let idle = IDLE.lock().unwrap_or_else(|poison| poison.into_inner()).pop();
        idle.unwrap_or_else(|| Arc::new(Self::simulated(Config::default())))
    }

    fn simulated(config: Config) -> Self {
        let simulator = Simulator::new(config).expect("a simulated machine");
        let driver = Functions { table: *simulator.table(), simulator: Some(simulator) };
        Self::open(driver, 0)
    }

    /// A simulated device with this text in place of an image. It is not given back.
    pub(crate) fn edited(
        image: &'static str,
        target: SmTarget,
        text: &str,
        config: Config,
    ) -> Self {
        let machine = Self::simulated(config);
        let module = machine.load(text);
        machine.modules.lock().unwrap().insert((image, target), module);
        machine
    }

    fn load(&self, ptx: &str) -> CUmodule {
        let (text, mut module) = (CString::new(ptx).unwrap(), CUmodule::NULL);
        call!(self.driver, cuCtxSetCurrent(self.context));
        call!(self.driver, cuModuleLoadData(&mut module, text.as_ptr().cast()));
        module
    }

    /// Gives a device back that [`Machine::take`] returned.
    pub(crate) fn give_back(self: Arc<Self>) {
        if self.driver.simulator.is_some() {
            IDLE.lock().unwrap_or_else(|poison| poison.into_inner()).push(self);
        }
    }

    /// The GPU that the environment selects, if it does.
    fn selected() -> Option<Self> {
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
        gpu.inspect_err(|why| assert!(!required, "a GPU is required, but there is none: {why}"))
            .ok()
    }

    fn gpu(index: i32) -> Result<Self, String> {
        let table = DriverTable::load().map_err(|error| error.to_string())?;
        let mut count = 0;
        // SAFETY: `cuInit` takes 0, and the pointer is valid.
        let codes = unsafe { [(table.cuInit)(0), (table.cuDeviceGetCount)(&mut count)] };
        if codes != [CUresult::CUDA_SUCCESS; 2] || index >= count {
            return Err(format!("{count} devices, {codes:?}"));
        }
        Ok(Self::open(Functions { table, simulator: None }, index))
    }

    #[expect(clippy::print_stdout, reason = "a test names its device")]
    fn open(driver: Functions, index: i32) -> Self {
        let (mut device, mut context, mut name) = (0, CUcontext::NULL, [0; 128]);
        let (mut major, mut minor) = (0, 0);
        call!(driver, cuInit(0));
        call!(driver, cuDeviceGet(&mut device, index));
        call!(driver, cuDeviceGetName(name.as_mut_ptr(), name.len() as i32, device));
        let [of_major, of_minor] = [
            CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
            CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
        ];
        call!(driver, cuDeviceGetAttribute(&mut major, of_major, device));
        call!(driver, cuDeviceGetAttribute(&mut minor, of_minor, device));
        call!(driver, cuDevicePrimaryCtxRetain(&mut context, device));
        // SAFETY: the call terminated the name with a NUL.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
        let target = SmTarget::for_device(major as u32, minor as u32).expect("a known device");
        println!("device: {name}, compute capability {major}.{minor}, images for {target}");
        Self { driver, context, target, modules: Mutex::default() }
    }

    /// The entry point, from a module for `target` that is loaded once per device.
    pub(crate) fn function(
        &self,
        image: &'static str,
        target: SmTarget,
        entry: &str,
    ) -> CUfunction {
        let mut modules = self.modules.lock().unwrap_or_else(|poison| poison.into_inner());
        let module = *modules.entry((image, target)).or_insert_with(|| {
            let ptx = images::ptx(image, target).expect("an image for every kernel");
            self.load(ptx)
        });
        let (name, mut function) = (CString::new(entry).unwrap(), CUfunction::NULL);
        call!(self.driver, cuModuleGetFunction(&mut function, module, name.as_ptr()));
        let shared = images::dynamic_shared(entry, target) as i32;
        if shared > 0 {
            let limit = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            call!(self.driver, cuFuncSetAttribute(function, limit, shared));
        }
        function
    }
}

pub(crate) use call;
