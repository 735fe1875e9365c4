//! Ranks of a communicator: threads with two GPUs, or each with its own simulated device.
//!
//! `RETROGRAPH_NCCL` names the NCCL library of the GPUs.

use std::path::Path;

use retrograph_driver_sim::Config;
use retrograph_runtime::{Communicator, Nccl, Ranks, UniqueId};

use crate::device::{Device, asked_for, device_of, required, two_devices};

/// A rank under test.
pub(crate) struct Rank {
    pub(crate) device: Device,
    pub(crate) communicator: Communicator,
}

impl Rank {
    pub(crate) fn number(&self) -> usize {
        self.communicator.ranks().rank
    }
}

/// Runs `body` on `count` simulated ranks of the communicator `id`, each on a thread. Returns the
/// results in order.
pub(crate) fn simulated_ranks<T: Send>(
    id: UniqueId,
    count: usize,
    body: impl Fn(&Rank) -> T + Sync,
) -> Vec<T> {
    run(count, |ranks| {
        let mut config = Config::default();
        config.seed = 7 + ranks.rank as u64;
        let device = device_of(&crate::device::simulated(config));
        let communicator = Communicator::join(&simulated(), &device.context, id, ranks).unwrap();
        body(&Rank { device, communicator })
    })
}

/// Runs `body` on two ranks: GPUs if there are two, simulated devices otherwise.
pub(crate) fn two_ranks<T: Send>(body: impl Fn(&Rank) -> T + Sync) -> Vec<T> {
    let devices = two_devices();
    if devices[0].context.driver().is_simulated() {
        return simulated_ranks(simulated().unique_id().unwrap(), 2, body);
    }
    let nccl = match std::env::var_os("RETROGRAPH_NCCL") {
        // SAFETY: the variable names NCCL.
        Some(path) => unsafe { Nccl::load_from(Path::new(&path)) },
        None => Nccl::load(),
    };
    let nccl = match nccl {
        Ok(nccl) => nccl,
        Err(error) if required() || asked_for("RETROGRAPH_REQUIRE_GPUS").is_some() => {
            panic!("NCCL is required: {error}")
        }
        Err(_) => return simulated_ranks(simulated().unique_id().unwrap(), 2, body),
    };
    let id = nccl.unique_id().unwrap();
    let devices = devices.map(|device| std::sync::Mutex::new(Some(device)));
    run(2, |ranks| {
        let device = devices[ranks.rank].lock().unwrap().take().unwrap();
        let communicator = Communicator::join(&nccl, &device.context, id, ranks).unwrap();
        body(&Rank { device, communicator })
    })
}

/// The simulated NCCL.
pub(crate) fn simulated() -> Nccl {
    // SAFETY: the simulated functions behave as NCCL's, for simulated devices.
    unsafe { Nccl::from_table(retrograph_nccl_sim::table()) }
}

fn run<T: Send>(count: usize, body: impl Fn(Ranks) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let body = &body;
        let start = |rank| scope.spawn(move || body(Ranks { rank, world_size: count }));
        let threads: Vec<_> = (0..count).map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}
