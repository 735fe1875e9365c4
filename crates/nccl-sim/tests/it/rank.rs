//! A rank: a simulated device with one buffer, and its communicator.

use std::ffi::CStr;

use retrograph_driver_sim::{Config, Simulator};
use retrograph_driver_sys::{CUcontext, CUdeviceptr, CUresult, CUstream};
use retrograph_nccl_sys::{
    NcclTable, ncclComm_t, ncclDataType_t, ncclRedOp_t, ncclResult_t, ncclUniqueId,
};

pub(crate) const FLOAT: ncclDataType_t = ncclDataType_t::ncclFloat32;
pub(crate) const SUM: ncclRedOp_t = ncclRedOp_t::ncclSum;

pub(crate) fn unique_id() -> ncclUniqueId {
    let mut id = ncclUniqueId::default();
    // SAFETY: the place is valid.
    unsafe { (retrograph_nccl_sim::table().ncclGetUniqueId)(&mut id) }.ok().unwrap();
    id
}

pub(crate) struct Rank {
    pub(crate) nccl: NcclTable,
    pub(crate) simulator: Simulator,
    pub(crate) stream: CUstream,
    pub(crate) comm: ncclComm_t,
    pub(crate) rank: i32,
    /// A buffer of [`Rank::ELEMENTS`] f32.
    pub(crate) buffer: CUdeviceptr,
}

impl Rank {
    pub(crate) const ELEMENTS: usize = 64;

    /// Opens a device, without a communicator.
    pub(crate) fn device(rank: i32) -> Self {
        let mut config = Config::default();
        config.seed = rank as u64;
        let simulator = Simulator::new(config).unwrap();
        let driver = *simulator.table();
        let (mut context, mut stream, mut buffer) = (CUcontext::NULL, CUstream::NULL, 0);
        // SAFETY: all places are valid.
        unsafe {
            (driver.cuInit)(0).ok().unwrap();
            (driver.cuDevicePrimaryCtxRetain)(&mut context, 0).ok().unwrap();
            (driver.cuCtxSetCurrent)(context).ok().unwrap();
            (driver.cuStreamCreate)(&mut stream, 0).ok().unwrap();
            (driver.cuMemAlloc_v2)(&mut buffer, Self::ELEMENTS * 4).ok().unwrap();
        }
        let (nccl, comm) = (retrograph_nccl_sim::table(), ncclComm_t::NULL);
        Self { nccl, simulator, stream, comm, rank, buffer }
    }

    pub(crate) fn join(&mut self, ranks: i32, id: ncclUniqueId) -> Result<(), ncclResult_t> {
        // SAFETY: the place is valid.
        unsafe { (self.nccl.ncclCommInitRank)(&mut self.comm, ranks, id, self.rank) }.ok()
    }

    /// The address of an element.
    pub(crate) fn at(&self, element: usize) -> *mut std::ffi::c_void {
        (self.buffer + element as u64 * 4) as *mut _
    }

    pub(crate) fn write(&self, element: usize, values: &[f32]) {
        let (address, driver) = (self.at(element) as u64, self.simulator.table());
        // SAFETY: the values live during the call.
        let code = unsafe {
            (driver.cuMemcpyHtoD_v2)(address, values.as_ptr().cast(), size_of_val(values))
        };
        code.ok().unwrap();
    }

    pub(crate) fn read(&self, element: usize, count: usize) -> Vec<f32> {
        let (address, driver) = (self.at(element) as u64, self.simulator.table());
        let mut values = vec![0.0_f32; count];
        // SAFETY: the values live during the call.
        let code =
            unsafe { (driver.cuMemcpyDtoH_v2)(values.as_mut_ptr().cast(), address, count * 4) };
        code.ok().unwrap();
        values
    }

    /// Enqueues a sum over `count` elements from `element` on, in place.
    pub(crate) fn all_reduce(&self, element: usize, count: usize) -> ncclResult_t {
        let place = self.at(element);
        // SAFETY: the buffer outlives the work, which the tests wait for.
        unsafe {
            (self.nccl.ncclAllReduce)(place, place, count, FLOAT, SUM, self.comm, self.stream)
        }
    }

    pub(crate) fn synchronize(&self) -> CUresult {
        // SAFETY: the stream lives.
        unsafe { (self.simulator.table().cuStreamSynchronize)(self.stream) }
    }

    pub(crate) fn error(&self) -> (ncclResult_t, String) {
        let mut code = ncclResult_t::ncclSuccess;
        // SAFETY: the place is valid, and the text is copied before the next call.
        unsafe {
            (self.nccl.ncclCommGetAsyncError)(self.comm, &mut code).ok().unwrap();
            let text = CStr::from_ptr((self.nccl.ncclGetLastError)(self.comm));
            (code, text.to_string_lossy().into_owned())
        }
    }

    pub(crate) fn destroy(&self) -> ncclResult_t {
        // SAFETY: nothing uses the communicator afterwards.
        unsafe { (self.nccl.ncclCommDestroy)(self.comm) }
    }
}

/// Runs `body` on `ranks` threads, each with its rank, and returns the results in order.
pub(crate) fn run<T: Send>(
    ranks: i32,
    id: ncclUniqueId,
    body: impl Fn(&Rank) -> T + Sync,
) -> Vec<T> {
    std::thread::scope(|scope| {
        let start = |rank| {
            let body = &body;
            scope.spawn(move || {
                let mut rank = Rank::device(rank);
                rank.join(ranks, id).unwrap();
                body(&rank)
            })
        };
        let threads: Vec<_> = (0..ranks).map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}
