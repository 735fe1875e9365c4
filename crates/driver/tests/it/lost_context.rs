//! After a kernel fault the context is lost, and every call reports the cause.

use retrograph_driver::{
    DeviceBuffer, Error, Event, Graph, KernelArguments, KernelLaunch, LaunchGeometry, Module,
    Stream,
};

use crate::device::{Device, alone, device_of, driver, simulated};
use crate::ptx::{SCALE, STORE, load};

/// Enqueues a store to an invalid address.
fn fault(device: &Device) -> Error {
    let function = load(&device.context, STORE, "store");
    let arguments = KernelArguments::new().address(0x10);
    let geometry = LaunchGeometry::linear(1, 1);
    let launch = KernelLaunch::new(&function, geometry, &arguments);
    // SAFETY: only the context is lost, which these tests are about.
    unsafe { device.stream.launch(&launch) }.unwrap();
    device.stream.synchronize().unwrap_err()
}

#[test]
fn every_later_call_fails_at_once_with_the_first_cause() {
    alone("lost_context::every_later_call_fails_at_once_with_the_first_cause", |device| {
        let Device { context, stream } = &device;
        let buffer = DeviceBuffer::<u32>::zeroed(context, 4).unwrap();
        let event = Event::new(context).unwrap();
        let mut exec = Graph::new(context).unwrap().instantiate().unwrap();
        assert!(context.lost().is_none());

        let Error::ContextLost { cause } = fault(&device) else { panic!("no fault") };
        assert!(cause.is_sticky(), "{cause}");
        assert_eq!(cause.call, "cuStreamSynchronize");
        assert_eq!(context.lost(), Some(&cause));

        let lost = Error::ContextLost { cause };
        assert_eq!(buffer.upload(stream, &[1; 4]).unwrap_err(), lost);
        assert_eq!(buffer.download(stream).unwrap_err(), lost);
        assert_eq!(DeviceBuffer::<u32>::zeroed(context, 4).unwrap_err(), lost);
        assert_eq!(Stream::new(context).unwrap_err(), lost);
        assert_eq!(event.record(stream).unwrap_err(), lost);
        assert_eq!(event.is_complete().unwrap_err(), lost);
        assert_eq!(exec.launch(stream).unwrap_err(), lost);
        assert_eq!(context.synchronize().unwrap_err(), lost);
        assert_eq!(context.mem_get_info().unwrap_err(), lost);
        assert_eq!(Module::load_ptx(context, SCALE).unwrap_err().error, lost);
    });
}

#[test]
fn a_capture_on_a_lost_context_is_not_recovered() {
    alone("lost_context::a_capture_on_a_lost_context_is_not_recovered", |device| {
        let Error::ContextLost { cause } = fault(&device) else { panic!("no fault") };
        let error = device.stream.capture(Default::default(), |_| Ok::<_, Error>(())).unwrap_err();
        assert!(!error.recovered);
        assert_eq!(error.first.unwrap().error, cause);
    });
}

#[test]
fn a_fault_does_not_affect_another_driver() {
    alone("lost_context::a_fault_does_not_affect_another_driver", |device| {
        fault(&device);
        let other = device_of(&simulated(Default::default()));
        let buffer = DeviceBuffer::from_slice(&other.stream, &[1_u32, 2]).unwrap();
        assert_eq!(buffer.download(&other.stream).unwrap(), [1, 2]);
    });
}

#[test]
fn contexts_of_one_device_are_lost_together() {
    alone("lost_context::contexts_of_one_device_are_lost_together", |device| {
        let again = device_of(device.context.driver());
        fault(&device);
        assert!(again.context.lost().is_some());
        assert!(matches!(again.stream.synchronize(), Err(Error::ContextLost { .. })));
    });
}

#[test]
fn drivers_report_version_and_devices() {
    let driver = driver();
    assert!(driver.version() >= retrograph_driver::DriverVersion::MIN);
    assert!(driver.device_count().unwrap() >= 1);
    let device = device_of(&driver);
    let info = device.context.info().unwrap();
    assert_eq!(info.name.contains("SIMULATED"), driver.is_simulated());
    assert!(info.free_bytes <= info.total_bytes && info.multiprocessors > 0);
    let (major, minor) = info.compute_capability;
    assert_eq!(device.context.compute_capability(), (major, minor));
}
