//! Memory pools.

use std::ffi::c_void;

use retrograph_driver_sys::*;

use crate::argument::{Call, In, Out};
use crate::refusal::{Refusal, Rule, invalid, refuse};
use crate::state::{Location, Pool, PoolKind, State};

impl State {
    pub(crate) fn cuMemPoolCreate(
        &mut self,
        pool: Out<CUmemoryPool>,
        properties: In<CUmemPoolProps>,
    ) -> Call {
        let given = properties.get()?;
        let kind = self.pool_kind(given.allocType, given.location)?;
        self.check_pool_handles(kind, given.handleTypes)?;
        if kind.is_managed && given.maxSize != 0 {
            return Err(invalid(Rule::PoolManagedSize));
        }
        let handle = self.handle();
        pool.write(handle)?;
        self.pools.insert(handle, Pool::new(kind, given.maxSize as u64, false));
        Ok(())
    }

    /// The kind of a pool by its allocation type and location.
    fn pool_kind(
        &self,
        r#type: CUmemAllocationType,
        location: CUmemLocation,
    ) -> Result<PoolKind, Refusal> {
        use CUmemAllocationType as Type;
        use CUmemLocationType as T;
        let is_managed = r#type == Type::CU_MEM_ALLOCATION_TYPE_MANAGED;
        let location = match location.r#type {
            T::CU_MEM_LOCATION_TYPE_NONE if is_managed => Location::Anywhere,
            T::CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT if is_managed => Location::HostNode,
            T::CU_MEM_LOCATION_TYPE_DEVICE => {
                let ordinal = self.device_index(location.id);
                Location::Device(ordinal.map_err(|_| invalid(Rule::PoolDevice))?)
            }
            T::CU_MEM_LOCATION_TYPE_HOST => Location::Host,
            T::CU_MEM_LOCATION_TYPE_HOST_NUMA if location.id == 0 => Location::HostNode,
            T::CU_MEM_LOCATION_TYPE_HOST_NUMA => return Err(invalid(Rule::PoolNode)),
            _ => return Err(invalid(Rule::PoolLocation)),
        };
        match r#type {
            Type::CU_MEM_ALLOCATION_TYPE_PINNED | Type::CU_MEM_ALLOCATION_TYPE_MANAGED => {
                Ok(PoolKind { is_managed, location })
            }
            _ => Err(invalid(Rule::PoolKind)),
        }
    }

    /// Refuses shareable handles.
    fn check_pool_handles(&mut self, kind: PoolKind, types: CUmemAllocationHandleType) -> Call {
        use CUmemAllocationHandleType as Handle;
        let can_be_exported = !kind.is_managed && kind.location != Location::Host;
        match types {
            Handle::CU_MEM_HANDLE_TYPE_NONE => Ok(()),
            Handle::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
            | Handle::CU_MEM_HANDLE_TYPE_FABRIC
                if can_be_exported =>
            {
                // The recorded device supports handles. Here no call can export one.
                if self.config.recorded_attributes {
                    return Ok(());
                }
                Err(self.unsupported("pools with handles for other processes are not simulated"))
            }
            _ => Err(invalid(Rule::PoolHandles)),
        }
    }

    pub(crate) fn cuMemPoolDestroy(&mut self, pool: CUmemoryPool) -> Call {
        self.refuse_unsafe()?;
        let found = self.pool(pool)?;
        if found.is_default {
            return Err(invalid(Rule::PoolDefault));
        }
        // Allocations from the pool stay valid.
        found.is_destroyed = true;
        self.current_pools.retain(|_, present| *present != pool);
        Ok(())
    }

    pub(crate) fn cuMemPoolTrimTo(&mut self, pool: CUmemoryPool, bytes_to_keep: usize) -> Call {
        self.refuse_unsafe()?;
        self.pool(pool)?.trim(bytes_to_keep as u64);
        Ok(())
    }

    pub(crate) fn cuMemPoolGetAttribute(
        &mut self,
        pool: CUmemoryPool,
        attribute: CUmemPool_attribute,
        value: Out<c_void>,
    ) -> Call {
        use CUmemPool_attribute as A;
        let found = self.pool(pool)?;
        let number = match attribute {
            A::CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES
            | A::CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC
            | A::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES => {
                return value.cast().write(found.reuse[attribute.0 as usize - 1]);
            }
            A::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => found.threshold,
            A::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT => found.reserved,
            A::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH => found.reserved_high,
            A::CU_MEMPOOL_ATTR_USED_MEM_CURRENT => found.used,
            A::CU_MEMPOOL_ATTR_USED_MEM_HIGH => found.used_high,
            _ => return Err(invalid(Rule::PoolAttribute)),
        };
        value.cast().write(number)
    }

    pub(crate) fn cuMemPoolSetAttribute(
        &mut self,
        pool: CUmemoryPool,
        attribute: CUmemPool_attribute,
        value: Out<c_void>,
    ) -> Call {
        use CUmemPool_attribute as A;
        self.refuse_unsafe()?;
        self.pool(pool)?;
        if value.is_null() {
            return Err(self.undefined("the value of an attribute of a pool is read through null"));
        }
        let found = self.pool(pool)?;
        match attribute {
            A::CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES
            | A::CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC
            | A::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES => {
                let on = value.cast::<i32>().get()? != 0;
                found.reuse[attribute.0 as usize - 1] = i32::from(on);
            }
            A::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => found.threshold = value.cast().get()?,
            A::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH if value.cast::<u64>().get()? == 0 => {
                found.reserved_high = found.reserved;
            }
            A::CU_MEMPOOL_ATTR_USED_MEM_HIGH if value.cast::<u64>().get()? == 0 => {
                found.used_high = found.used;
            }
            _ => return Err(invalid(Rule::PoolAttribute)),
        }
        Ok(())
    }

    pub(crate) fn cuMemPoolGetAccess(
        &mut self,
        flags: Out<CUmemAccess_flags>,
        pool: CUmemoryPool,
        location: Out<CUmemLocation>,
    ) -> Call {
        self.undestroyed_pool(pool)?;
        let location = self.access_location(location.get()?)?;
        let found = self.pool(pool)?;
        flags.write(match found.is_at(location) || found.granted.contains(&location) {
            true => CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
            false => CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE,
        })
    }

    /// The location of an access descriptor.
    fn access_location(&self, location: CUmemLocation) -> Result<Location, Refusal> {
        use CUmemLocationType as T;
        match location.r#type {
            T::CU_MEM_LOCATION_TYPE_DEVICE => {
                let ordinal = self.device_index(location.id);
                ordinal.map(Location::Device).map_err(|_| invalid(Rule::PoolAccess))
            }
            T::CU_MEM_LOCATION_TYPE_HOST => Ok(Location::Host),
            T::CU_MEM_LOCATION_TYPE_HOST_NUMA => Ok(Location::HostNode),
            _ => Err(invalid(Rule::PoolAccess)),
        }
    }

    pub(crate) fn cuMemPoolSetAccess(
        &mut self,
        pool: CUmemoryPool,
        descriptors: In<CUmemAccessDesc>,
        count: usize,
    ) -> Call {
        let kind = self.pool(pool)?.kind;
        if count == 0 {
            return Err(invalid(Rule::PoolAccess));
        }
        // A refused call has no effect.
        let mut changes = Vec::new();
        for given in descriptors.list(count)? {
            match kind.is_hosted() {
                true => changes.push(self.check_access_to_host(pool, given)?),
                false => self.check_access_to_device(kind, given)?,
            }
        }
        changes
            .into_iter()
            .try_for_each(|(location, is_granted)| self.grant(pool, location, is_granted))
    }

    /// Whether flags grant access; otherwise they revoke it.
    fn is_grant(&mut self, flags: CUmemAccess_flags) -> Result<bool, Refusal> {
        use CUmemAccess_flags as Flags;
        match flags {
            Flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE => Ok(true),
            Flags::CU_MEM_ACCESS_FLAGS_PROT_NONE => Ok(false),
            Flags::CU_MEM_ACCESS_FLAGS_PROT_READ => {
                Err(refuse(CUresult::CUDA_ERROR_NOT_SUPPORTED, Rule::PoolReadOnly))
            }
            _ => Err(self.unsupported("other kinds of access")),
        }
    }

    /// Checks a change of the access to device memory. Such changes have no effect.
    fn check_access_to_device(&mut self, kind: PoolKind, given: CUmemAccessDesc) -> Call {
        if given.location.r#type != CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE {
            return Err(refuse(CUresult::CUDA_ERROR_NOT_SUPPORTED, Rule::PoolHost));
        }
        if self.access_location(given.location)? != kind.location {
            return Err(self.unsupported("access of other devices is not simulated"));
        }
        match self.is_grant(given.flags)? {
            true => Ok(()),
            // The device of a pool always has access.
            false => Err(refuse(CUresult::CUDA_ERROR_INVALID_DEVICE, Rule::PoolOwn)),
        }
    }

    /// Checks a change of the access to a host pool or a managed pool. Returns the location and
    /// whether it gets access.
    fn check_access_to_host(
        &mut self,
        pool: CUmemoryPool,
        given: CUmemAccessDesc,
    ) -> Result<(Location, bool), Refusal> {
        let is_granted = self.is_grant(given.flags)?;
        let location = self.access_location(given.location)?;
        if self.pool(pool)?.is_at(location) && !is_granted {
            // The access of the host to its own pools cannot change.
            return Err(refuse(CUresult::CUDA_ERROR_NOT_SUPPORTED, Rule::PoolOwn));
        }
        Ok((location, is_granted))
    }

    /// Grants or revokes a location's access to the memory of a host pool or a managed pool.
    fn grant(&mut self, pool: CUmemoryPool, location: Location, is_granted: bool) -> Call {
        let found = self.pool(pool)?;
        if found.is_at(location) || found.granted.contains(&location) == is_granted {
            return Ok(());
        }
        // Devices always have access to managed memory.
        if let (Location::Device(ordinal), false) = (location, found.kind.is_managed) {
            self.map_pool(pool, ordinal, is_granted)?;
        }
        let granted = &mut self.pool(pool)?.granted;
        match is_granted {
            true => granted.insert(location),
            false => granted.remove(&location),
        };
        Ok(())
    }

    /// Maps the memory of a host pool on a device, or unmaps it.
    fn map_pool(&mut self, pool: CUmemoryPool, ordinal: usize, is_granted: bool) -> Call {
        self.complete_device(ordinal)?;
        let of_pool = self.pinned.iter().filter(|(_, pinned)| pinned.pool == Some(pool));
        let addresses: Vec<_> = of_pool.map(|(address, _)| *address).collect();
        for address in addresses {
            match is_granted {
                true => self.map_pinned(ordinal, address)?,
                false => self.unmap_pinned(ordinal, address),
            }
        }
        Ok(())
    }

    pub(crate) fn cuDeviceGetDefaultMemPool(
        &mut self,
        pool: Out<CUmemoryPool>,
        device: CUdevice,
    ) -> Call {
        let ordinal = self.device_index(device)?;
        let found = self.default_pool(PoolKind::of_device(ordinal));
        pool.write(found)
    }

    pub(crate) fn cuDeviceGetMemPool(&mut self, pool: Out<CUmemoryPool>, device: CUdevice) -> Call {
        let ordinal = self.device_index(device).map_err(|_| invalid(Rule::PoolDevice))?;
        let found = self.current_pool(PoolKind::of_device(ordinal));
        pool.write(found)
    }

    pub(crate) fn cuDeviceSetMemPool(&mut self, device: CUdevice, pool: CUmemoryPool) -> Call {
        self.refuse_unsafe()?;
        let ordinal = self.device_index(device).map_err(|_| invalid(Rule::PoolDevice))?;
        self.set_current_pool(PoolKind::of_device(ordinal), pool)
    }

    fn set_current_pool(&mut self, kind: PoolKind, pool: CUmemoryPool) -> Call {
        if self.undestroyed_pool(pool)?.kind != kind {
            return Err(invalid(Rule::PoolPlace));
        }
        self.current_pools.insert(kind, pool);
        Ok(())
    }

    /// Writes the pool of a memory type at a location.
    fn put_pool(
        &mut self,
        pool: Out<CUmemoryPool>,
        location: Out<CUmemLocation>,
        r#type: CUmemAllocationType,
        pool_of: fn(&mut Self, PoolKind) -> CUmemoryPool,
    ) -> Call {
        pool.require()?;
        let kind = self.pool_kind(r#type, location.get()?)?;
        let found = pool_of(self, kind);
        pool.write(found)
    }

    pub(crate) fn cuMemGetDefaultMemPool(
        &mut self,
        pool: Out<CUmemoryPool>,
        location: Out<CUmemLocation>,
        r#type: CUmemAllocationType,
    ) -> Call {
        self.put_pool(pool, location, r#type, Self::default_pool)
    }

    pub(crate) fn cuMemGetMemPool(
        &mut self,
        pool: Out<CUmemoryPool>,
        location: Out<CUmemLocation>,
        r#type: CUmemAllocationType,
    ) -> Call {
        self.put_pool(pool, location, r#type, Self::current_pool)
    }

    pub(crate) fn cuMemSetMemPool(
        &mut self,
        location: Out<CUmemLocation>,
        r#type: CUmemAllocationType,
        pool: CUmemoryPool,
    ) -> Call {
        let kind = self.pool_kind(r#type, location.get()?)?;
        self.set_current_pool(kind, pool)
    }
}
