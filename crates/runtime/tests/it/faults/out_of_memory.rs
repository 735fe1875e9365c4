//! Device memory runs out at every size that a program can need, although more is reported as free.

use std::collections::BTreeSet;
use std::sync::Arc;

use retrograph_driver_sim::{Config, Simulator};
use retrograph_runtime::{Bindings, BuildError, DeviceBuffer, Error, Policy, Reuse};

use super::client::Client;
use super::{left, world};
use crate::bound::branches;
use crate::device::{device_of, driver_of};
use crate::programs::build;

#[test]
fn every_allocation_failure_is_reported_and_leaks_nothing() {
    for policy in [Policy::Auto, Policy::Manual, Policy::Capture, Policy::Eager] {
        let simulator = world();
        let client = Client::new(&simulator, policy.into()).unwrap();
        let expected = client.run().unwrap();
        let before = simulator.live();
        let mut errors = BTreeSet::new();
        let enough = (0..).step_by(4).find(|bytes| {
            simulator.out_of_memory_at(*bytes);
            let outcome = client.run();
            assert_eq!(simulator.live(), before, "{policy:?}, {bytes} bytes");
            match outcome {
                Ok(state) => {
                    assert_eq!(state, expected);
                    true
                }
                Err(error) => {
                    errors.insert(error);
                    false
                }
            }
        });
        assert!(enough.unwrap() > 0);
        // The two buffers that are bound, and the program's own memory.
        assert_eq!(errors.len(), 3, "{errors:?}");
        assert!(errors.iter().all(|error| error.contains("cannot allocate")), "{errors:?}");
        drop(client);
        left(&simulator).unwrap();
    }
}

#[test]
fn memory_that_is_free_in_pieces_is_met_by_sharing_more() {
    let (pass, outs) = branches(256);
    let [ordered, full] =
        [Reuse::WhenOrdered, Reuse::Full].map(|reuse| pass.plan_with(reuse).peak_bytes() as u64);
    let simulator = Arc::new(Simulator::new(Config::default()).unwrap());
    let device = device_of(&driver_of(&simulator).unwrap());
    let buffers: Vec<DeviceBuffer<u32>> =
        outs.iter().map(|_| DeviceBuffer::zeroed(&device.context, 8).unwrap()).collect();
    let mut bindings = Bindings::new();
    for (out, buffer) in outs.iter().zip(&buffers) {
        bindings.bind(*out, buffer);
    }
    let used = simulator.live().allocated_bytes;
    for (bytes, expected) in [
        (ordered, Some(Reuse::WhenOrdered)),
        (ordered - 1, Some(Reuse::Full)),
        (full, Some(Reuse::Full)),
        (full - 1, None),
        (0, None),
    ] {
        simulator.out_of_memory_at(used + bytes);
        let built = build(&device, &pass, &bindings, Policy::Auto);
        assert_eq!(built.as_ref().ok().map(|program| program.report().reuse), expected, "{bytes}");
        match built {
            Ok(mut program) => drop(program.step(&device.stream, &pass.controls()).unwrap()),
            Err(BuildError::Device(Error::OutOfMemory { requested, free, .. })) => {
                assert!(requested as u64 == full && free as u64 > full, "{requested} of {free}");
            }
            Err(error) => panic!("{error}"),
        }
        for (branch, buffer) in (1..).zip(&buffers) {
            assert_eq!(buffer.download(&device.stream).unwrap(), [branch; 8]);
        }
        assert_eq!(simulator.live().allocated_bytes, used);
    }
}
