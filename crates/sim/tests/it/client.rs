//! The crate `cudarc` as a client: its safe interface, which loads libcuda by name at run time.

use std::process::Command;
use std::sync::Arc;

use cudarc::driver::sys::{CUevent_flags, CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaContext, CudaStream, DriverError, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;

use crate::{library, program, run, text};

/// Set for the process that is the client.
pub(crate) const CLIENT: &str = "RETROGRAPH_TEST_CLIENT";
const N: usize = 300;

#[test]
fn cudarc_runs_on_the_library() {
    let library = library();
    let mut command = Command::new(std::env::current_exe().expect("the test has a path"));
    command.args(["--exact", "client::process", "--ignored", "--nocapture"]);
    command.env("LD_LIBRARY_PATH", library.path()).env(CLIENT, "1");
    let said = text(&run(&mut command));
    assert!(said.contains("1 passed") && said.contains("SIMULATED CUDA driver"), "{said}");
}

#[test]
#[ignore = "a process of its own, started by `cudarc_runs_on_the_library`"]
fn process() {
    assert!(std::env::var_os(CLIENT).is_some(), "it needs the library in its path");
    client().unwrap_or_else(|error| panic!("{error:?}"));
}

fn client() -> Result<(), DriverError> {
    let context = CudaContext::new(0)?;
    assert!(context.name()?.contains("SIMULATED"));
    let stream = context.new_stream()?;
    let saxpy = Saxpy::new(&context, &stream)?;
    saxpy.at_once()?;
    saxpy.as_a_graph()?;
    context.synchronize()
}

struct Saxpy {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    function: cudarc::driver::CudaFunction,
    x: cudarc::driver::CudaSlice<f32>,
}

impl Saxpy {
    fn new(context: &Arc<CudaContext>, stream: &Arc<CudaStream>) -> Result<Self, DriverError> {
        let text = std::fs::read_to_string(program("saxpy.ptx")).expect("the PTX is there");
        let module = context.load_module(Ptx::from_src(text))?;
        let function = module.load_function("saxpy")?;
        let x = stream.clone_htod(&(0..N).map(|i| i as f32).collect::<Vec<_>>())?;
        Ok(Self { context: context.clone(), stream: stream.clone(), function, x })
    }

    fn launch(&self, y: &mut cudarc::driver::CudaSlice<f32>, a: f32) -> Result<(), DriverError> {
        let n = N as u32;
        let mut launch = self.stream.launch_builder(&self.function);
        launch.arg(y).arg(&self.x).arg(&a).arg(&n);
        // SAFETY: the arguments match the kernel, which checks its index against `n`.
        unsafe { launch.launch(LaunchConfig::for_num_elems(n)) }.map(drop)
    }

    fn at_once(&self) -> Result<(), DriverError> {
        let mut y = self.stream.alloc_zeros::<f32>(N)?;
        let timed = Some(CUevent_flags::CU_EVENT_DEFAULT);
        let begin = self.stream.record_event(timed)?;
        self.launch(&mut y, 3.0)?;
        let end = self.stream.record_event(timed)?;
        assert!(begin.elapsed_ms(&end)? >= 0.0);
        let values = self.stream.clone_dtoh(&y)?;
        self.stream.synchronize()?;
        assert!(values.iter().enumerate().all(|(i, value)| *value == 3.0 * i as f32));
        Ok(())
    }

    fn as_a_graph(&self) -> Result<(), DriverError> {
        let mut y = self.stream.alloc_zeros::<f32>(N)?;
        self.stream.synchronize()?;
        // SAFETY: one stream does all the work, so that no event between streams is missed.
        unsafe { self.context.disable_event_tracking() };
        self.stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
        self.launch(&mut y, 1.0)?;
        self.launch(&mut y, 0.5)?;
        let flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
        let graph = self.stream.end_capture(flags)?.expect("the stream was captured");
        for _ in 0..2 {
            graph.launch()?;
        }
        let values = self.stream.clone_dtoh(&y)?;
        self.stream.synchronize()?;
        assert!(values.iter().enumerate().all(|(i, value)| *value == 3.0 * i as f32));
        Ok(())
    }
}
