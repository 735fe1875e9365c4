//! The library on simulated devices; with `RETROGRAPH_DEVICE=cuda:0` on the GPU of this machine.

use retrograph_driver::sys::CUresult;
use retrograph_driver::{Context, DeviceIndex, Driver, Stream};
use test_on_simulator::Histogram;

/// A device of its own for each test, so that tests run in parallel and cannot disturb each other.
fn driver() -> Driver {
    match std::env::var("RETROGRAPH_DEVICE").as_deref() {
        Ok("cuda:0") => Driver::load().expect("this machine has a driver"),
        _ => Driver::simulated(Default::default()).expect("a simulator can be made"),
    }
}

#[test]
fn every_byte_is_counted() {
    let context = Context::new(&driver(), DeviceIndex(0)).unwrap();
    let stream = Stream::new(&context).unwrap();
    let histogram = Histogram::new(&context).unwrap();
    let data: Vec<u8> = (0..1000_u32).map(|i| (i * i % 251) as u8).collect();
    let mut expected = vec![0; 256];
    data.iter().for_each(|byte| expected[usize::from(*byte)] += 1);
    assert_eq!(histogram.count(&stream, &data).unwrap(), expected);
    assert_eq!(histogram.count(&stream, &[]).unwrap(), [0; 256]);
}

#[test]
fn a_failed_allocation_is_an_error_and_leaks_nothing() {
    let driver = Driver::simulated(Default::default()).unwrap();
    let simulator = driver.simulator().expect("the driver is simulated");
    {
        let context = Context::new(&driver, DeviceIndex(0)).unwrap();
        let stream = Stream::new(&context).unwrap();
        let histogram = Histogram::new(&context).unwrap();
        // The second allocation from now fails.
        simulator.fail("cuMemAlloc_v2", 2, CUresult::CUDA_ERROR_OUT_OF_MEMORY).unwrap();
        let error = histogram.count(&stream, b"hello").unwrap_err();
        assert!(error.to_string().contains("memory"), "{error}");
        // The library works again.
        assert_eq!(histogram.count(&stream, b"hello").unwrap()[usize::from(b'l')], 2);
    }
    assert!(simulator.live().is_empty(), "{:?}", simulator.live());
}
