//! SMs of devices, and their split into groups.

use std::ptr::{null, null_mut};

use retrograph_driver_sim::Config;
use retrograph_driver_sys::*;

use crate::machine::with;
use crate::machine::{Machine, cu, cu_optional};

const SUCCESS: CUresult = CUresult::CUDA_SUCCESS;
const INVALID_VALUE: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;
const SM: CUdevResourceType = CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM;

/// The result of a split: the groups, their number, and the remainder.
type Split = (Vec<CUdevResource>, u32, CUdevResource);

impl Machine {
    fn multiprocessors(&self) -> CUdevResource {
        let mut resource = CUdevResource::default();
        assert_eq!(cu_optional!(self, cuDeviceGetDevResource(0, &mut resource, SM)), SUCCESS);
        resource
    }

    /// Splits all SMs into at most `room` groups; with 0 only counts the groups.
    fn split(&self, room: usize, least: u32, flags: u32) -> Result<Split, CUresult> {
        let (all, mut rest) = (self.multiprocessors(), CUdevResource::default());
        let mut groups = vec![CUdevResource::default(); room];
        let mut count = room as u32;
        let result = if room == 0 { null_mut() } else { groups.as_mut_ptr() };
        cu_optional!(
            self,
            cuDevSmResourceSplitByCount(result, &mut count, &all, &mut rest, flags, least)
        )
        .ok()?;
        Ok((groups, count, rest))
    }
}

fn sm(resource: &CUdevResource) -> CUdevSmResource {
    assert_eq!(resource.r#type, SM);
    // SAFETY: `type` selects this field.
    unsafe { resource.anonymous.sm }
}

#[test]
fn a_device_and_its_contexts_have_the_sm_count_of_the_attribute() {
    let machine = Machine::new();
    let attribute = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
    let mut count = 0;
    assert_eq!(cu!(machine, cuDeviceGetAttribute(&mut count, attribute, 0)), SUCCESS);
    let expected = CUdevSmResource {
        smCount: count.cast_unsigned(),
        minSmPartitionSize: 8,
        smCoscheduledAlignment: 8,
    };
    assert_eq!(sm(&machine.multiprocessors()), expected);
    let mut resource = CUdevResource::default();
    let code = cu_optional!(machine, cuCtxGetDevResource(machine.context, &mut resource, SM));
    assert_eq!((code, sm(&resource)), (SUCCESS, expected));
    let code = cu_optional!(machine, cuCtxGetDevResource(CUcontext::NULL, &mut resource, SM));
    assert_eq!(code, CUresult::CUDA_ERROR_INVALID_CONTEXT, "null is not the current context");
}

const ANY: u32 = CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING;

#[test]
fn groups_have_at_least_the_count_in_multiples_of_the_alignment() {
    let machine = Machine::new();
    for (least, flags, size, possible) in [
        (0, 0, 8, 15),
        (8, CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE, 8, 15),
        (8, ANY, 8, 16),
        (1, ANY, 2, 66),
        (9, 0, 16, 8),
        (64, 0, 64, 2),
        (67, ANY, 68, 1),
        (67, 0, 72, 1),
        (130, 0, 132, 1),
    ] {
        let (_, count, rest) = machine.split(0, least, flags).expect("a count");
        assert_eq!((count, rest.r#type), (possible, CUdevResourceType(0)), "{least}");
        let (groups, count, rest) = machine.split(68, least, flags).expect("groups");
        assert_eq!(count, possible, "{least}");
        for (index, group) in groups.iter().enumerate() {
            match index < possible as usize {
                true => assert_eq!(sm(group).smCount, size, "{least}"),
                false => assert_eq!(group.r#type, CUdevResourceType(0), "not written"),
            }
        }
        match 132 - possible * size {
            0 => assert_eq!(rest.r#type, CUdevResourceType::CU_DEV_RESOURCE_TYPE_INVALID),
            left => assert_eq!(sm(&rest).smCount, left, "{least}"),
        }
    }
    let (groups, count, rest) = machine.split(3, 2, 0).expect("fewer groups than possible");
    assert_eq!((count, sm(&groups[2]).smCount, sm(&rest).smCount), (3, 8, 108));
}

#[test]
fn devices_of_capability_8_have_smaller_groups() {
    let machine = Machine::with(with(Config::default(), |it| it.compute_capability = (8, 0)));
    let all = sm(&machine.multiprocessors());
    assert_eq!((all.minSmPartitionSize, all.smCoscheduledAlignment), (4, 2));
    let (groups, count, _) = machine.split(40, 1, 0).expect("groups");
    assert_eq!((count, sm(&groups[0]).smCount), (33, 4));
}

#[test]
fn a_driver_of_12_4_returns_only_the_count() {
    let machine = Machine::with(with(Config::default(), |it| it.driver_version = 12040));
    let expected = CUdevSmResource { smCount: 132, ..CUdevSmResource::default() };
    assert_eq!(sm(&machine.multiprocessors()), expected);
    let (groups, count, _) = machine.split(1, 9, 0).expect("a group");
    assert_eq!((count, sm(&groups[0]).smCount), (1, 16));
}

#[test]
fn bad_arguments_of_a_split_write_nothing() {
    let machine = Machine::new();
    let all = machine.multiprocessors();
    let (mut group, mut count, mut rest) = (CUdevResource::default(), 1, CUdevResource::default());
    let mut split = |groups: *mut u32, input, flags, least| {
        let remaining = &raw mut rest;
        cu_optional!(
            machine,
            cuDevSmResourceSplitByCount(&mut group, groups, input, remaining, flags, least)
        )
    };
    assert_eq!(split(null_mut(), &all, 0, 8), INVALID_VALUE);
    assert_eq!(split(&mut 0, &all, 0, 8), INVALID_VALUE);
    assert_eq!(split(&mut count, null(), 0, 8), INVALID_VALUE);
    assert_eq!(split(&mut count, &all, 3, 8), INVALID_VALUE);
    let impossible = CUresult::CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    assert_eq!(split(&mut count, &all, 0, 133), impossible);
    let other = CUdevResource::default();
    let invalid_type = CUresult::CUDA_ERROR_INVALID_RESOURCE_TYPE;
    assert_eq!(split(&mut count, &other, 0, 8), invalid_type);
    // A resource of no device, and a part of one.
    let made_up = CUdevResource { r#type: SM, ..other };
    let (groups, ..) = machine.split(1, 8, 0).expect("a group");
    for input in [made_up, groups[0]] {
        assert_eq!(split(&mut count, &input, 0, 8), impossible);
    }
    assert_eq!((count, group.r#type, rest.r#type), (1, other.r#type, other.r#type));
}

#[test]
fn other_resources_are_refused() {
    let machine = Machine::trusting();
    let mut resource = CUdevResource::default();
    let invalid_type = CUresult::CUDA_ERROR_INVALID_RESOURCE_TYPE;
    for kind in [0, 2, 99].map(CUdevResourceType) {
        let code = cu_optional!(machine, cuDeviceGetDevResource(0, &mut resource, kind));
        assert_eq!(code, invalid_type);
        let code = cu_optional!(machine, cuCtxGetDevResource(machine.context, &mut resource, kind));
        assert_eq!(code, invalid_type);
    }
    assert_eq!(resource.r#type, CUdevResourceType(0), "nothing was written");
    let none = null_mut();
    assert_eq!(cu_optional!(machine, cuDeviceGetDevResource(0, none, SM)), INVALID_VALUE);
    let unknown = cu_optional!(machine, cuDeviceGetDevResource(9, &mut resource, SM));
    assert_eq!(unknown, CUresult::CUDA_ERROR_INVALID_DEVICE);
    assert_eq!(cu!(machine, cuCtxSetCurrent(CUcontext::NULL)), SUCCESS);
    let unknown = cu_optional!(machine, cuCtxGetDevResource(CUcontext::NULL, &mut resource, SM));
    assert_eq!(unknown, CUresult::CUDA_ERROR_INVALID_CONTEXT);
}
