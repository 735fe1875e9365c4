//! Resources of devices: SMs, which a program can split into groups.
//!
//! Green contexts, which use such groups, are not simulated.

use retrograph_driver_sys::*;

use super::device::MULTIPROCESSORS;
use crate::argument::{Call, In, Out};
use crate::config::Config;
use crate::refusal::{Rule, invalid, refuse};
use crate::state::State;

/// Marks resources of the simulator, in the opaque part of the structure.
const MARK: [u8; 8] = *b"SIM-RES.";

/// The first driver that writes the granularity of groups to a resource.
const GRANULARITY_SINCE: i32 = 13000;

/// A resource of SMs, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Multiprocessors {
    /// The ordinal of the device.
    device: u32,
    /// The number of SMs.
    count: u32,
    /// Whether it is a group from a split.
    is_group: bool,
}

impl Multiprocessors {
    /// Encodes the resource.
    fn resource(self, config: &Config) -> CUdevResource {
        let (fewest, alignment) = match config.driver_version {
            ..GRANULARITY_SINCE => (0, 0),
            _ => granularity(config.compute_capability),
        };
        let mut resource = CUdevResource {
            r#type: CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM,
            ..Default::default()
        };
        let parts = [self.device, u32::from(self.is_group)].map(u32::to_ne_bytes);
        let bytes = MARK.into_iter().chain(parts.into_iter().flatten());
        for (place, byte) in resource._internal_padding.iter_mut().zip(bytes) {
            *place = byte;
        }
        resource.anonymous.sm = CUdevSmResource {
            smCount: self.count,
            minSmPartitionSize: fewest,
            smCoscheduledAlignment: alignment,
        };
        resource
    }

    /// Decodes a resource that the simulator created.
    fn of(resource: &CUdevResource) -> Option<Self> {
        let (mark, parts) = resource._internal_padding.split_at(MARK.len());
        let word = |index: usize| {
            let bytes = parts.get(4 * index..4 * index + 4)?;
            Some(u32::from_ne_bytes(bytes.try_into().ok()?))
        };
        // SAFETY: all fields are integers, for which any bytes are valid.
        let count = unsafe { resource.anonymous.sm.smCount };
        let found = Self { device: word(0)?, count, is_group: word(1)? != 0 };
        (mark == MARK && count <= MULTIPROCESSORS.cast_unsigned()).then_some(found)
    }
}

/// The minimum SMs of a group, and the alignment of their number.
///
/// Source: the chapter about green contexts in cuda.h 13.0.
fn granularity((major, _): (u32, u32)) -> (u32, u32) {
    match major {
        ..=7 => (2, 2),
        8 => (4, 2),
        _ => (8, 8),
    }
}

/// Refuses resource types that devices do not have.
fn check_type(kind: CUdevResourceType) -> Call {
    match kind {
        CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM => Ok(()),
        _ => Err(refuse(CUresult::CUDA_ERROR_INVALID_RESOURCE_TYPE, Rule::ResourceType)),
    }
}

impl State {
    /// All SMs of the device with this ordinal.
    fn all_multiprocessors(&self, ordinal: usize) -> CUdevResource {
        let (device, count) = (ordinal as u32, MULTIPROCESSORS.cast_unsigned());
        let all = Multiprocessors { device, count, is_group: false };
        all.resource(&self.config)
    }

    pub(crate) fn cuDeviceGetDevResource(
        &mut self,
        device: CUdevice,
        resource: Out<CUdevResource>,
        kind: CUdevResourceType,
    ) -> Call {
        let ordinal = self.device_index(device)?;
        resource.require()?;
        check_type(kind)?;
        resource.write(self.all_multiprocessors(ordinal))
    }

    pub(crate) fn cuCtxGetDevResource(
        &mut self,
        context: CUcontext,
        resource: Out<CUdevResource>,
        kind: CUdevResourceType,
    ) -> Call {
        let index = self.named_or_current(context)?;
        resource.require()?;
        check_type(kind)?;
        resource.write(self.all_multiprocessors(self.devices[index].ordinal))
    }

    pub(crate) fn cuDevSmResourceSplitByCount(
        &mut self,
        result: Out<CUdevResource>,
        groups: Out<u32>,
        input: In<CUdevResource>,
        remaining: Out<CUdevResource>,
        flags: u32,
        min_count: u32,
    ) -> Call {
        groups.require()?;
        let input = input.get()?;
        check_type(input.r#type)?;
        let Some(input) = Multiprocessors::of(&input).filter(|known| !known.is_group) else {
            return Err(self.unsupported("a split of only a part of the SMs of a device"));
        };
        let known = CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING
            | CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE;
        if flags & !known != 0 {
            return Err(invalid(Rule::ResourceFlags));
        }
        if min_count > input.count {
            return Err(invalid(Rule::ResourceCount));
        }
        let (fewest, alignment) = granularity(self.config.compute_capability);
        let size = min_count.max(fewest).next_multiple_of(alignment);
        if flags != 0 || min_count == 0 || size > input.count {
            let message = format!("a split with flags {flags} and at least {min_count} SMs");
            return Err(self.unsupported(message));
        }
        let possible = input.count / size;
        let made = if result.is_null() { possible } else { groups.get()?.min(possible) };
        let part = |count| match count {
            // Not a resource.
            0 => CUdevResource::default(),
            _ => Multiprocessors { count, is_group: true, ..input }.resource(&self.config),
        };
        if !result.is_null() {
            (0..made as usize).try_for_each(|index| result.write_at(index, part(size)))?;
        }
        remaining.write_unless_null(part(input.count - made * size));
        groups.write(made)
    }
}
