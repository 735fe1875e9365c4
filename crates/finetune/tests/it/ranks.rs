//! Ranks of a run: one thread per device, a coordinator, and a communicator.
//!
//! Each rank uses its own GPU if `RETROGRAPH_DEVICE` names one and there are enough;
//! `RETROGRAPH_NCCL` names the library. Otherwise each rank has its own simulated device.

use std::env;
use std::path::Path;
use std::sync::mpsc;

use retrograph_driver_sim::Config;
use retrograph_finetune::group::{Coordinator, GroupOptions, ProcessGroup};
use retrograph_finetune::{
    Device, DeviceChoice, Plan, Source, Trainer, TrainerOptions, TrainingConfig,
};
use retrograph_nccl_sim::Fault;
use retrograph_nccl_sys::ncclUniqueId;
use retrograph_runtime::{Communicator, Nccl, Ranks, UniqueId};
use retrograph_test_support::device::asked_for;
use retrograph_test_support::with;

use crate::device::simulated;

/// A rank under test.
pub(crate) struct Rank {
    pub(crate) device: Device,
    pub(crate) group: ProcessGroup,
    /// The id of the communicator, by which the simulated NCCL knows its ranks.
    pub(crate) id: ncclUniqueId,
}

impl Rank {
    pub(crate) fn ranks(&self) -> Ranks {
        self.group.ranks()
    }

    pub(crate) fn is_first(&self) -> bool {
        self.ranks().rank == 0
    }

    pub(crate) fn options(&self, options: TrainerOptions) -> TrainerOptions {
        // Small parameters also have blocks.
        let shard_from = options.step.shard_from.or(Some(0));
        let mut step = options.step;
        step.ranks = self.ranks();
        step.shard_from = shard_from;
        with(options, |it| it.step = step)
    }

    pub(crate) fn plan(&self, config: &TrainingConfig, options: TrainerOptions) -> Plan {
        let plan = Plan::new(config, self.options(options)).unwrap();
        plan.with_group(self.group.clone())
    }

    pub(crate) fn trainer(&self, config: &TrainingConfig, options: TrainerOptions) -> Trainer {
        self.start(self.plan(config, options), Source::Seed)
    }

    pub(crate) fn start(&self, plan: Plan, source: Source<'_>) -> Trainer {
        plan.start(&self.device.modules(), source, &mut |_| ()).unwrap()
    }
}

/// How ranks are made.
pub(crate) struct Setup {
    pub(crate) count: usize,
    pub(crate) options: GroupOptions,
    /// The fault of a rank in the simulated NCCL.
    pub(crate) fault: Option<(i32, Fault)>,
    /// Whether devices are simulated even if there are GPUs.
    pub(crate) simulated: bool,
}

impl Setup {
    pub(crate) fn of(count: usize) -> Self {
        Self { count, options: GroupOptions::default(), fault: None, simulated: false }
    }

    /// Runs `body` on every rank, and returns the results in order.
    pub(crate) fn run<T: Send>(&self, body: impl Fn(&Rank) -> T + Sync) -> Vec<T> {
        let may_use_gpus = !self.simulated && self.fault.is_none();
        let gpus = if may_use_gpus { gpus(self.count) } else { None };
        let coordinator = Coordinator::listen("127.0.0.1:0", self.count, self.options).unwrap();
        let address = coordinator.address();
        std::thread::scope(|scope| {
            let start = |rank| {
                let (body, gpus) = (&body, gpus.as_ref());
                scope.spawn(move || {
                    let ranks = Ranks { rank, world_size: self.count };
                    let group = ProcessGroup::join(address, ranks, "a test", self.options).unwrap();
                    let (device, nccl) = match gpus {
                        Some(nccl) => {
                            (Device::open(DeviceChoice::Cuda(rank as u32)).unwrap(), *nccl)
                        }
                        None => {
                            let mut config = Config::default();
                            config.seed = 5 + rank as u64;
                            (simulated(config), simulated_nccl())
                        }
                    };
                    let id = self.connect(&group, &nccl, &device);
                    let result = body(&Rank { device, group: group.clone(), id });
                    group.leave();
                    result
                })
            };
            let threads: Vec<_> = (0..self.count).map(start).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    /// Returns the id of the communicator.
    fn connect(&self, group: &ProcessGroup, nccl: &Nccl, device: &Device) -> ncclUniqueId {
        let (held, context, fault) = (*nccl, device.context.clone(), self.fault);
        let (sender, receiver) = mpsc::channel();
        let join = move |ranks: Ranks, id: UniqueId| {
            let raw = ncclUniqueId { internal: id.bytes().map(|byte| byte as _) };
            sender.send(raw).unwrap();
            if let Some((rank, fault)) = fault.filter(|(rank, _)| ranks.rank as i32 == *rank) {
                retrograph_nccl_sim::inject(&raw, rank, fault);
            }
            Communicator::join(&held, &context, id, ranks)
        };
        group.connect_by(nccl, join).unwrap();
        receiver.recv().unwrap()
    }
}

/// Runs `body` on `count` ranks without faults.
pub(crate) fn on_ranks<T: Send>(count: usize, body: impl Fn(&Rank) -> T + Sync) -> Vec<T> {
    Setup::of(count).run(body)
}

/// The simulated NCCL.
pub(crate) fn simulated_nccl() -> Nccl {
    // SAFETY: the simulated functions behave as NCCL's, for simulated devices.
    unsafe { Nccl::from_table(retrograph_nccl_sim::table()) }
}

/// The NCCL of the machine, if tests run on its GPUs and there are at least `count`.
fn gpus(count: usize) -> Option<Nccl> {
    let required = asked_for("RETROGRAPH_REQUIRE_GPUS").is_some_and(|gpus| gpus >= count as u64);
    let named = env::var("RETROGRAPH_DEVICE").is_ok_and(|named| named.starts_with("cuda:"));
    if !named && !required {
        return None;
    }
    let last = Device::open(DeviceChoice::Cuda(count as u32 - 1));
    let nccl = match env::var_os("RETROGRAPH_NCCL") {
        // SAFETY: the variable names NCCL.
        Some(path) => unsafe { Nccl::load_from(Path::new(&path)) },
        None => Nccl::load(),
    };
    match (last, nccl) {
        (Ok(_), Ok(nccl)) => Some(nccl),
        (Err(error), _) if required => panic!("{count} GPUs are required: {error}"),
        (_, Err(error)) if required => panic!("NCCL is required: {error}"),
        _ => None,
    }
}
