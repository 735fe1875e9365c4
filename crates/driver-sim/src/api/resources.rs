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

/// The SMs of a device or a part of them, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Multiprocessors {
    /// The ordinal of the device.
    device: u32,
    /// The number of SMs.
    count: u32,
    /// Whether it comes from a split.
    is_part: bool,
}

impl Multiprocessors {
    /// Encodes the resource. No SMs are no resource, and parts have no granularity.
    fn resource(self, config: &Config) -> CUdevResource {
        if self.count == 0 {
            return CUdevResource::default();
        }
        let has_granularity = !self.is_part && config.driver_version >= GRANULARITY_SINCE;
        let Granularity { fewest, alignment, .. } = match has_granularity {
            true => Granularity::of(config, 0),
            false => Granularity::default(),
        };
        let mut resource = CUdevResource {
            r#type: CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM,
            ..Default::default()
        };
        let parts = [self.device, u32::from(self.is_part)].map(u32::to_ne_bytes);
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
        let found = Self { device: word(0)?, count, is_part: word(1)? != 0 };
        (mark == MARK && count <= MULTIPROCESSORS.cast_unsigned()).then_some(found)
    }
}

/// The sizes of groups.
#[derive(Clone, Copy, Debug, Default)]
struct Granularity {
    /// The SMs of the smallest group.
    fewest: u32,
    /// The SMs of a group are a multiple of this, unless the group has all SMs.
    alignment: u32,
    /// The maximum number of the smallest groups, if some SMs fit only into larger ones.
    most: Option<u32>,
}

impl Granularity {
    /// The granularity of a split with these flags.
    ///
    /// Source: the chapter about green contexts in cuda.h 13.0; for capability 9, recordings of an
    /// H200. It has 15 smallest groups whose SMs can form clusters: their number depends on the
    /// die.
    fn of(config: &Config, flags: u32) -> Self {
        match config.compute_capability.0 {
            ..=7 => Self { fewest: 2, alignment: 2, most: None },
            8 => Self { fewest: 4, alignment: 2, most: None },
            _ if flags & CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING != 0 => {
                Self { fewest: 2, alignment: 2, most: None }
            }
            _ => Self { fewest: 8, alignment: 8, most: Some(15) },
        }
    }

    /// The size of groups with at least `least` of `all` SMs, and the number of possible groups.
    fn split(self, least: u32, all: u32) -> (u32, u32) {
        let size = least.max(self.fewest).next_multiple_of(self.alignment).min(all);
        let possible = all.checked_div(size).unwrap_or(0);
        match self.most {
            Some(most) if size == self.fewest => (size, possible.min(most)),
            _ => (size, possible),
        }
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
        let all = Multiprocessors { device, count, is_part: false };
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
        // Null does not mean the current context.
        if context.is_null() {
            return Err(refuse(CUresult::CUDA_ERROR_INVALID_CONTEXT, Rule::ContextNone));
        }
        let index = self.named_or_current(context)?;
        self.check_alive()?;
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
        const BOTH: u32 = CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING
            | CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE;
        let room = groups.get()?;
        let input = input.get()?;
        if !result.is_null() && room == 0 {
            return Err(invalid(Rule::ResourceNoRoom));
        }
        check_type(input.r#type)?;
        // Other bits mean nothing.
        if flags & BOTH == BOTH {
            return Err(invalid(Rule::ResourceFlags));
        }
        let impossible = |rule| refuse(CUresult::CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, rule);
        let input = Multiprocessors::of(&input).filter(|known| !known.is_part);
        let input = input.ok_or(impossible(Rule::ResourcePart))?;
        if min_count > input.count {
            return Err(impossible(Rule::ResourceCount));
        }
        let granularity = Granularity::of(&self.config, flags);
        let (size, possible) = granularity.split(min_count, input.count);
        if result.is_null() {
            return groups.write(possible);
        }
        let made = room.min(possible);
        let part = |count| Multiprocessors { count, is_part: true, ..input }.resource(&self.config);
        (0..made as usize).try_for_each(|index| result.write_at(index, part(size)))?;
        remaining.write_unless_null(part(input.count - made * size));
        groups.write(made)
    }

    pub(crate) fn cuDevResourceGenerateDesc(
        &mut self,
        _: Out<CUdevResourceDesc>,
        _: Out<CUdevResource>,
        _: u32,
    ) -> Call {
        self.refuse_green_contexts()
    }

    pub(crate) fn cuGreenCtxCreate(
        &mut self,
        _: Out<CUgreenCtx>,
        _: CUdevResourceDesc,
        _: CUdevice,
        _: u32,
    ) -> Call {
        self.refuse_green_contexts()
    }

    pub(crate) fn cuGreenCtxDestroy(&mut self, _: CUgreenCtx) -> Call {
        self.refuse_green_contexts()
    }

    pub(crate) fn cuCtxFromGreenCtx(&mut self, _: Out<CUcontext>, _: CUgreenCtx) -> Call {
        self.refuse_green_contexts()
    }

    pub(crate) fn cuGreenCtxGetDevResource(
        &mut self,
        _: CUgreenCtx,
        _: Out<CUdevResource>,
        _: CUdevResourceType,
    ) -> Call {
        self.refuse_green_contexts()
    }

    pub(crate) fn cuGreenCtxStreamCreate(
        &mut self,
        _: Out<CUstream>,
        _: CUgreenCtx,
        _: u32,
        _: i32,
    ) -> Call {
        self.refuse_green_contexts()
    }

    fn refuse_green_contexts(&mut self) -> Call {
        Err(self.unsupported("green contexts are not simulated"))
    }
}
