//! A pass whose memory shows how often each step ran, and in which order.

use retrograph_kernels::{Access, Argument, BufferArgument, Cell};
use retrograph_runtime::{
    Bindings, BufferId, Context, Controls, CustomLaunch, DeviceBuffer, LaunchGeometry, LibraryCall,
    OpId, Pass, PassError, Slice, Stream,
};

use crate::ptx::image;

/// `x[i] = 1664525 · x[i] + y[i] + step + salt`, with the addresses of x and y in a table.
const MIX: &str = "
.version 6.3
.target sm_75
.address_size 64

.visible .entry mix(
    .param .u64 table,
    .param .u64 step,
    .param .u32 salt
)
{
    .reg .b32 %r<6>;
    .reg .b64 %rd<8>;

    ld.param.u64        %rd0, [table];
    cvta.to.global.u64  %rd0, %rd0;
    ld.global.u64       %rd1, [%rd0];
    ld.global.u64       %rd2, [%rd0+8];
    cvta.to.global.u64  %rd1, %rd1;
    cvta.to.global.u64  %rd2, %rd2;
    ld.param.u64        %rd3, [step];
    cvta.to.global.u64  %rd3, %rd3;
    ld.global.u32       %r0, [%rd3];
    ld.param.u32        %r1, [salt];
    mov.u32             %r2, %tid.x;
    mad.wide.u32        %rd4, %r2, 4, %rd1;
    mad.wide.u32        %rd5, %r2, 4, %rd2;
    ld.global.u32       %r3, [%rd4];
    ld.global.u32       %r4, [%rd5];
    mad.lo.u32          %r3, %r3, 1664525, %r4;
    add.u32             %r3, %r3, %r0;
    add.u32             %r3, %r3, %r1;
    st.global.u32       [%rd4], %r3;
    ret;
}
";

/// The pass, with every kind of command: fills, copies, and launches with tables and a control.
pub(crate) struct Tally {
    pub(crate) pass: Pass,
    x: Slice<u32>,
    y: Slice<u32>,
    step: Slice<u32>,
    length: usize,
}

/// Device memory for the externals of a [`Tally`].
pub(crate) struct TallyBuffers {
    x: DeviceBuffer<u32>,
    y: DeviceBuffer<u32>,
}

impl Tally {
    /// The pass over buffers of 32 values.
    pub(crate) fn new() -> Self {
        Self::with_length(32)
    }

    /// The pass over buffers of `length` values, one thread for each.
    pub(crate) fn with_length(length: usize) -> Self {
        Self::copying(length, |pass, from, to| pass.copy(from, to))
    }

    /// The pass over buffers of 32 values, in which a library copies, by two nodes.
    pub(crate) fn with_library() -> Self {
        Self::copying(32, |pass, from, to| {
            let call = LibraryCall::new("copy by halves", |scope| {
                let (from, to, half) = (scope.range(0), scope.range(1), scope.range(0).bytes / 2);
                let second = [to.address, from.address].map(|start| start + half as u64);
                // SAFETY: the halves are in the ranges of the call, which do not overlap.
                unsafe {
                    scope.stream().memcpy_dtod(to.address, from.address, half)?;
                    scope.stream().memcpy_dtod(second[0], second[1], half)
                }
            });
            // SAFETY: the work reads and writes what is declared, only on its stream.
            unsafe { pass.library(call.reads(from).writes(to)) }
        })
    }

    fn copying(
        length: usize,
        copy: impl FnOnce(&mut Pass, Slice<u32>, Slice<u32>) -> Result<OpId, PassError>,
    ) -> Self {
        let mut pass = Pass::new("tally");
        let [x, y] = ["x", "y"].map(|name| pass.external(name, length));
        let [first, second] = ["first", "second"].map(|name| pass.transient(name, length));
        let step = pass.control("step");
        let mut tally = Self { pass, x, y, step, length };
        tally.pass.fill(first, 7).unwrap();
        copy(&mut tally.pass, first, second).unwrap();
        // Two that do not touch each other, and one that joins them.
        tally.mix([x, second, step], 1);
        tally.mix([y, second, step], 2);
        // Of every kind one that names a bound buffer itself and not by a table.
        tally.mix([x, y, y.slice(0..1)], 3);
        tally.pass.copy(x.slice(0..1), y.slice(1..2)).unwrap();
        tally.pass.fill(y.slice(2..3), 9).unwrap();
        tally
    }

    fn mix(&mut self, [x, y, step]: [Slice<u32>; 3], salt: u32) {
        let cell = |slice, access| Cell::Address(BufferArgument::new(slice, access));
        let table: Vec<Cell<BufferId>> = vec![cell(x, Access::ReadWrite), cell(y, Access::Read)];
        let step = Argument::read(step);
        let geometry = LaunchGeometry::linear(1, self.length as u32);
        let arguments = vec![Argument::Table(table), step, Argument::U32(salt)];
        let launch = CustomLaunch::new(image("mix", MIX), "mix", geometry, arguments);
        // SAFETY: the kernel touches what the table and the control name, one value by each thread.
        unsafe { self.pass.custom(launch) }.unwrap();
    }

    /// Fresh memory with the same initial values each time.
    pub(crate) fn buffers(&self, context: &Context) -> Result<TallyBuffers, String> {
        let make = || DeviceBuffer::zeroed(context, self.length);
        let zeroed = || make().map_err(|error| error.to_string());
        Ok(TallyBuffers { x: zeroed()?, y: zeroed()? })
    }

    /// Fresh memory that holds `state`.
    pub(crate) fn holding(&self, stream: &Stream, state: &[u32]) -> Result<TallyBuffers, String> {
        let holding = |values: &[u32]| {
            DeviceBuffer::from_slice(stream, values).map_err(|error| error.to_string())
        };
        let (x, y) = state.split_at(self.length);
        Ok(TallyBuffers { x: holding(x)?, y: holding(y)? })
    }

    pub(crate) fn bindings(&self, buffers: &TallyBuffers) -> Bindings {
        let mut bindings = Bindings::new();
        bindings.bind(self.x, &buffers.x).bind(self.y, &buffers.y);
        bindings
    }

    pub(crate) fn controls(&self, step: u32) -> Controls {
        let mut controls = self.pass.controls();
        controls.set(self.step, step).unwrap();
        controls
    }
}

impl TallyBuffers {
    /// All that steps write.
    pub(crate) fn state(&self, stream: &Stream) -> Result<Vec<u32>, String> {
        let download = |buffer: &DeviceBuffer<u32>| {
            // A download changes nothing, so it can be retried.
            let outcome = buffer.download(stream).or_else(|_| buffer.download(stream));
            outcome.map_err(|error| error.to_string())
        };
        Ok([download(&self.x)?, download(&self.y)?].concat())
    }
}
