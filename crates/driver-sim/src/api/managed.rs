//! Managed memory: memory at the same address for host and devices.
//!
//! It is host memory that every device has mapped, like mapped pinned memory. The location of pages
//! has no effect here, so prefetches and advice only change the results of queries.

use std::ffi::c_void;
use std::ops::Range;

use retrograph_driver_sys::*;

use crate::argument::{Call, Out};
use crate::refusal::{Refusal, Rule, invalid, refuse};
use crate::state::{Advice, Pinned, Route, State};

/// The ordinal of the host.
const HOST: i32 = -1;
/// The ordinal of no location, or of several.
const NOWHERE: i32 = -2;

/// Returns the ordinal of a location. Every location except the host is a device.
fn ordinal(location: CUmemLocation) -> i32 {
    match location.r#type {
        CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE => location.id,
        _ => HOST,
    }
}

/// Returns the location of a device ordinal, or of the host.
fn location_of(device: CUdevice) -> CUmemLocation {
    let r#type = match device {
        HOST => CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST,
        _ => CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
    };
    // Other ordinals below 0 stay, so that they are refused.
    CUmemLocation { r#type, id: if device == HOST { 0 } else { device } }
}

impl State {
    pub(crate) fn cuMemAllocManaged(
        &mut self,
        address: Out<CUdeviceptr>,
        bytes: usize,
        flags: u32,
    ) -> Call {
        address.write_unless_null(0);
        let device = self.current()?;
        self.refuse_unsafe()?;
        address.require()?;
        if flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST {
            return Err(invalid(Rule::ManagedFlags));
        }
        if bytes == 0 {
            return Err(invalid(Rule::ManagedSize));
        }
        let base = self.pin(Pinned::managed(bytes, device)?)?;
        address.write(base as u64)
    }

    /// Frees managed memory or memory of a host pool. Returns false if the address belongs to
    /// neither.
    pub(super) fn free_hosted(&mut self, address: CUdeviceptr) -> Result<bool, Refusal> {
        let is_freed = |found: &&Pinned| {
            let is_hosted = found.advice.is_some() || found.pool.is_some();
            is_hosted && !found.is_variable && !found.is_freed
        };
        let found = self.pinned.get(&(address as usize)).filter(is_freed);
        let Some(device) = found.map(|found| found.device) else {
            return Ok(false);
        };
        self.forget(device, address as usize)?;
        Ok(true)
    }

    /// The allocation of a range of managed memory, and the range inside it.
    fn managed_range(
        &mut self,
        address: CUdeviceptr,
        bytes: usize,
    ) -> Result<(usize, Range<usize>), Refusal> {
        let address = address as usize;
        let found = self.pinned.range(..=address).next_back();
        let found = found.filter(|(base, pinned)| {
            let offset = address - **base;
            pinned.advice.is_some() && bytes > 0 && bytes <= pinned.bytes().saturating_sub(offset)
        });
        let base = *found.ok_or(invalid(Rule::ManagedRange))?.0;
        Ok((base, address - base..address - base + bytes))
    }

    /// Whether managed memory belongs to a pool.
    fn is_pooled(&self, base: usize) -> bool {
        self.pinned.get(&base).is_some_and(|found| found.pool.is_some())
    }

    /// Refuses a location that does not exist.
    fn check_location(&self, location: CUmemLocation) -> Call {
        use CUmemLocationType as T;
        match location.r#type {
            T::CU_MEM_LOCATION_TYPE_DEVICE => self.device_index(location.id).map(|_| ()),
            T::CU_MEM_LOCATION_TYPE_HOST | T::CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT => Ok(()),
            T::CU_MEM_LOCATION_TYPE_HOST_NUMA if location.id == 0 => Ok(()),
            _ => Err(invalid(Rule::ManagedLocation)),
        }
    }

    fn change_advice(&mut self, base: usize, range: &Range<usize>, change: impl Fn(&mut Advice)) {
        let found = self.pinned.get_mut(&base).and_then(|found| found.advice.as_mut());
        if let Some(ranges) = found {
            ranges.change(range, change);
        }
    }

    pub(crate) fn cuMemAdvise(
        &mut self,
        address: CUdeviceptr,
        bytes: usize,
        advice: CUmem_advise,
        device: CUdevice,
    ) -> Call {
        self.cuMemAdvise_v2(address, bytes, advice, location_of(device))
    }

    pub(crate) fn cuMemAdvise_v2(
        &mut self,
        address: CUdeviceptr,
        bytes: usize,
        advice: CUmem_advise,
        location: CUmemLocation,
    ) -> Call {
        use CUmem_advise as A;
        self.current()?;
        let (base, range) = self.managed_range(address, bytes)?;
        if self.is_pooled(base) {
            return Err(refuse(CUresult::CUDA_ERROR_NOT_SUPPORTED, Rule::ManagedPooled));
        }
        match advice {
            A::CU_MEM_ADVISE_SET_READ_MOSTLY | A::CU_MEM_ADVISE_UNSET_READ_MOSTLY => {
                let is_set = advice == A::CU_MEM_ADVISE_SET_READ_MOSTLY;
                self.change_advice(base, &range, |known| known.is_read_mostly = is_set);
            }
            A::CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION => {
                self.change_advice(base, &range, |known| known.preferred = None);
            }
            A::CU_MEM_ADVISE_SET_PREFERRED_LOCATION => {
                self.check_location(location)?;
                self.change_advice(base, &range, |known| known.preferred = Some(location));
            }
            A::CU_MEM_ADVISE_SET_ACCESSED_BY => {
                self.check_location(location)?;
                let by = ordinal(location);
                self.change_advice(base, &range, |known| known.accessed_by.extend([by]));
            }
            A::CU_MEM_ADVISE_UNSET_ACCESSED_BY => {
                self.check_location(location)?;
                let by = ordinal(location);
                self.change_advice(base, &range, |known| {
                    known.accessed_by.retain(|other| *other != by)
                });
            }
            _ => return Err(invalid(Rule::ManagedAdvice)),
        }
        Ok(())
    }

    pub(crate) fn cuMemPrefetchAsync(
        &mut self,
        address: CUdeviceptr,
        bytes: usize,
        device: CUdevice,
        stream: CUstream,
    ) -> Call {
        self.cuMemPrefetchAsync_v2(address, bytes, location_of(device), 0, stream)
    }

    pub(crate) fn cuMemPrefetchAsync_v2(
        &mut self,
        address: CUdeviceptr,
        bytes: usize,
        location: CUmemLocation,
        flags: u32,
        stream: CUstream,
    ) -> Call {
        let route = self.route(stream)?;
        if flags != 0 {
            return Err(invalid(Rule::ManagedFlags));
        }
        let (base, range) = self.check_prefetch(address, bytes, location, route)?;
        self.change_advice(base, &range, |known| known.prefetched = Some(location));
        Ok(())
    }

    /// Checks a prefetch. Returns the allocation and the range inside it.
    fn check_prefetch(
        &mut self,
        address: CUdeviceptr,
        bytes: usize,
        location: CUmemLocation,
        route: Route,
    ) -> Result<(usize, Range<usize>), Refusal> {
        let found = self.managed_range(address, bytes)?;
        self.check_location(location)?;
        match route {
            Route::Queue(_) => Ok(found),
            Route::Capture(..) => Err(self.unsupported("a prefetch in a captured stream")),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the signature is the driver's")]
    pub(crate) fn cuMemPrefetchBatchAsync(
        &mut self,
        addresses: Out<CUdeviceptr>,
        sizes: Out<usize>,
        count: usize,
        locations: Out<CUmemLocation>,
        indices: Out<usize>,
        location_count: usize,
        flags: u64,
        stream: CUstream,
    ) -> Call {
        let ranges = addresses.input().list(count)?.into_iter().zip(sizes.input().list(count)?);
        let locations = locations.input().list(location_count)?;
        let starts = indices.input().list(location_count)?;
        if flags != 0 || count == 0 || starts.first() != Some(&0) {
            return Err(invalid(Rule::ManagedBatch));
        }
        let route = self.route(stream)?;
        // A refused call has no effect.
        let mut prefetches = Vec::new();
        for (index, (address, bytes)) in ranges.enumerate() {
            let place = starts.partition_point(|start| *start <= index).saturating_sub(1);
            let found = self.check_prefetch(address, bytes, locations[place], route)?;
            prefetches.push((found, locations[place]));
        }
        for ((base, range), location) in prefetches {
            self.change_advice(base, &range, |known| known.prefetched = Some(location));
        }
        Ok(())
    }

    /// The attachment has no effect: the host may access managed memory at any time.
    pub(crate) fn cuStreamAttachMemAsync(
        &mut self,
        stream: CUstream,
        address: CUdeviceptr,
        length: usize,
        flags: u32,
    ) -> Call {
        let route = self.route(stream)?;
        let (base, _) = self.managed_range(address, length.max(1))?;
        let whole = self.pinned.get(&base).map_or(0, Pinned::bytes);
        if self.is_pooled(base) {
            return Err(invalid(Rule::ManagedPooled));
        }
        if base != address as usize || (length != 0 && length != whole) {
            return Err(invalid(Rule::ManagedRange));
        }
        if ![CU_MEM_ATTACH_GLOBAL, CU_MEM_ATTACH_HOST, CU_MEM_ATTACH_SINGLE].contains(&flags) {
            return Err(invalid(Rule::ManagedFlags));
        }
        match route {
            Route::Queue(_) => Ok(()),
            Route::Capture(..) => Err(self.unsupported("attaching memory to a captured stream")),
        }
    }

    pub(crate) fn cuMemRangeGetAttribute(
        &mut self,
        data: Out<c_void>,
        size: usize,
        attribute: CUmem_range_attribute,
        address: CUdeviceptr,
        bytes: usize,
    ) -> Call {
        use CUmem_range_attribute as A;
        let (base, range) = self.managed_range(address, bytes)?;
        let is_list = attribute == A::CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY;
        let count = size / size_of::<i32>();
        if !size.is_multiple_of(size_of::<i32>()) || count == 0 || (count > 1 && !is_list) {
            return Err(invalid(Rule::ManagedAttribute));
        }
        let Some(ranges) = self.pinned.get(&base).and_then(|found| found.advice.as_ref()) else {
            return Err(invalid(Rule::ManagedRange));
        };
        let preferred = ranges.common(&range, |known| known.preferred).flatten();
        let prefetched = ranges.common(&range, |known| known.prefetched).flatten();
        let place = |location: Option<CUmemLocation>| location.map_or(NOWHERE, ordinal);
        let kind = |location: Option<CUmemLocation>| {
            location.map_or(0, |location| location.r#type.0.cast_signed())
        };
        let value = match attribute {
            A::CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY => {
                i32::from(ranges.common(&range, |known| known.is_read_mostly).unwrap_or(false))
            }
            A::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION
            | A::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID => place(preferred),
            A::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION
            | A::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID => place(prefetched),
            A::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE => kind(preferred),
            A::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE => kind(prefetched),
            A::CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY => {
                let by = ranges.common(&range, |known| known.accessed_by.clone());
                let mut by: Vec<_> = by.unwrap_or_default().into_iter().collect();
                // The host comes after the devices.
                by.sort_by_key(|ordinal| *ordinal == HOST);
                let by = by.into_iter().chain(std::iter::repeat(NOWHERE));
                let mut places = by.take(count).enumerate();
                return places.try_for_each(|(index, by)| data.cast().write_at(index, by));
            }
            _ => return Err(invalid(Rule::ManagedAttribute)),
        };
        data.cast().write(value)
    }

    pub(crate) fn cuMemRangeGetAttributes(
        &mut self,
        data: Out<*mut c_void>,
        sizes: Out<usize>,
        attributes: Out<CUmem_range_attribute>,
        count: usize,
        address: CUdeviceptr,
        bytes: usize,
    ) -> Call {
        let places = data.values().list(count)?;
        let sizes = sizes.input().list(count)?;
        let attributes = attributes.input().list(count)?;
        for ((place, size), attribute) in places.into_iter().zip(sizes).zip(attributes) {
            // SAFETY: like the lists, each pointer is valid for as many bytes as its size says.
            let place: Out<c_void> = unsafe { crate::argument::Admit::admit(place) };
            self.cuMemRangeGetAttribute(place, size, attribute, address, bytes)?;
        }
        Ok(())
    }
}
