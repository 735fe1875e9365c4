//! Fills: `cuMemsetD*`.

use retrograph_driver_sys::*;

use crate::argument::Call;
use crate::refusal::{Rule, invalid};
use crate::state::{Route, State};
use crate::work::{Fill, Operation, Work};

/// Destination and pitch of a fill.
#[derive(Clone, Copy)]
struct Rows {
    address: CUdeviceptr,
    pitch: usize,
    width: usize,
    height: usize,
}

impl State {
    /// Queues or captures a fill. A synchronous fill of host memory is complete when the call
    /// returns, one of device memory need not be.
    fn submit_fill(
        &mut self,
        given: CUDA_MEMSET_NODE_PARAMS,
        stream: CUstream,
        is_synchronous: bool,
    ) -> Call {
        let route = self.route(stream)?;
        if given.width == 0 || given.height == 0 {
            return Ok(());
        }
        let (Route::Queue(stream) | Route::Capture(stream, _)) = route;
        let fill = Fill { given, device: self.streams.get(stream)?.device };
        match route {
            // A captured fill checks its memory when it runs.
            Route::Capture(..) if !fill.is_aligned() => Err(invalid(Rule::FillMisaligned)),
            Route::Capture(stream, capture) => {
                self.capture_operation(stream, capture, Operation::Fill(fill))
            }
            Route::Queue(_) if fill.rows_overlap() => Err(invalid(Rule::FillPitch)),
            Route::Queue(stream) => {
                self.check_fill(&fill)?;
                let operation = Work::Operation(Operation::Fill(fill));
                let is_host = self.pinned_at(given.dst as usize, 1).is_some();
                match is_synchronous && is_host {
                    true => self.run_now(stream, operation),
                    false => self.enqueue(stream, operation).map(|_| ()),
                }
            }
        }
    }

    fn submit_rows(
        &mut self,
        rows: Rows,
        size: u32,
        value: u32,
        stream: CUstream,
        is_synchronous: bool,
    ) -> Call {
        let given = CUDA_MEMSET_NODE_PARAMS {
            pitch: rows.pitch,
            height: rows.height,
            ..row(rows.address, size, value, rows.width)
        };
        self.submit_fill(given, stream, is_synchronous)
    }
}

/// A fill of `count` elements of `size` bytes.
fn row(address: CUdeviceptr, size: u32, value: u32, count: usize) -> CUDA_MEMSET_NODE_PARAMS {
    CUDA_MEMSET_NODE_PARAMS {
        dst: address,
        pitch: 0,
        value,
        elementSize: size,
        width: count,
        height: 1,
    }
}

/// The synchronous and asynchronous, 1D and 2D fills for one element size.
macro_rules! fills {
    ($($size:literal $value:ident:
        $run:ident $run_async:ident $rows:ident $rows_async:ident;)*) => {
        impl State {$(
            pub(crate) fn $run(&mut self, dst: CUdeviceptr, value: $value, count: usize) -> Call {
                let fill = row(dst, $size, u32::from(value), count);
                let stream = self.default_stream()?;
                self.submit_fill(fill, stream, true)
            }

            pub(crate) fn $run_async(
                &mut self,
                dst: CUdeviceptr,
                value: $value,
                count: usize,
                stream: CUstream,
            ) -> Call {
                let fill = row(dst, $size, u32::from(value), count);
                self.submit_fill(fill, stream, false)
            }

            pub(crate) fn $rows(
                &mut self,
                dst: CUdeviceptr,
                pitch: usize,
                value: $value,
                width: usize,
                height: usize,
            ) -> Call {
                let rows = Rows { address: dst, pitch, width, height };
                let stream = self.default_stream()?;
                self.submit_rows(rows, $size, u32::from(value), stream, true)
            }

            pub(crate) fn $rows_async(
                &mut self,
                dst: CUdeviceptr,
                pitch: usize,
                value: $value,
                width: usize,
                height: usize,
                stream: CUstream,
            ) -> Call {
                let rows = Rows { address: dst, pitch, width, height };
                self.submit_rows(rows, $size, u32::from(value), stream, false)
            }
        )*}
    };
}

fills! {
    1 u8: cuMemsetD8_v2 cuMemsetD8Async cuMemsetD2D8_v2 cuMemsetD2D8Async;
    2 u16: cuMemsetD16_v2 cuMemsetD16Async cuMemsetD2D16_v2 cuMemsetD2D16Async;
    4 u32: cuMemsetD32_v2 cuMemsetD32Async cuMemsetD2D32_v2 cuMemsetD2D32Async;
}
