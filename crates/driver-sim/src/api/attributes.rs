//! Device attributes recorded on an H200, and attributes that advertise unsupported features.

use retrograph_driver_sys::CUdevice_attribute;

/// Number and value of each attribute, under driver 580.159.04, except attributes that differ
/// between machines, such as PCI ids.
#[rustfmt::skip]
const VALUES: [(u32, i32); 137] = [
    (1, 1024), (2, 1024), (3, 1024), (4, 64), (5, 2147483647), (6, 65535), (7, 65535), (8, 49152),
    (9, 65536), (10, 32), (11, 2147483647), (12, 65536), (14, 512), (15, 1), (16, 132), (17, 0),
    (18, 0), (19, 1), (20, 0), (21, 131072), (22, 131072), (23, 65536), (24, 16384), (25, 16384),
    (26, 16384), (27, 32768), (28, 32768), (29, 2048), (30, 512), (31, 1), (32, 1), (35, 0),
    (37, 6016), (38, 62914560), (39, 2048), (40, 3), (41, 1), (42, 32768), (43, 2048), (44, 1),
    (45, 32768), (46, 32768), (47, 8192), (48, 8192), (49, 32768), (51, 32), (52, 32768),
    (53, 32768), (54, 2046), (55, 32768), (56, 131072), (57, 65536), (58, 16384), (59, 16384),
    (60, 16384), (61, 32768), (62, 2048), (63, 32768), (64, 32768), (65, 2048), (66, 32768),
    (67, 32768), (68, 2046), (69, 268435456), (70, 131072), (71, 65000), (72, 2097120),
    (73, 32768), (74, 32768), (75, 9), (76, 0), (77, 32768), (78, 1), (79, 1), (80, 1),
    (81, 233472), (82, 65536), (83, 1), (84, 0), (85, 0), (86, 0), (87, 2), (88, 0), (89, 1),
    (90, 1), (91, 1), (92, 0), (93, 0), (94, 0), (95, 1), (96, 1), (97, 232448), (98, 0), (99, 1),
    (100, 0), (101, 0), (102, 1), (103, 1), (104, 0), (105, 0), (106, 32), (107, 1),
    (108, 39321600), (109, 134217728), (110, 1), (111, 1024), (112, 1), (113, 1), (114, 1),
    (115, 1), (116, 1), (117, 1), (118, 100), (119, 9), (120, 1), (121, 1), (122, 1), (123, 1),
    (124, 1), (125, 1), (126, 4), (127, 1), (128, 1), (129, 1), (132, 0), (133, 0), (135, 0),
    (136, 0), (137, 0), (138, 0), (141, 1), (142, 1), (143, 0), (144, 1), (145, 1), (146, 0),
    (147, 0),
];

/// Attributes that advertise unsupported features, as ranges of first and last number.
/// `docs/simulator.md` gives the reasons.
const NOT_SIMULATED: [(CUdevice_attribute, CUdevice_attribute); 18] = {
    use CUdevice_attribute as A;
    const fn only(attribute: A) -> (A, A) {
        (attribute, attribute)
    }
    [
        (
            A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH,
            A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_LAYERS,
        ),
        only(A::CU_DEVICE_ATTRIBUTE_ECC_ENABLED),
        (
            A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_WIDTH,
            A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE,
        ),
        (
            A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_WIDTH,
            A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT,
        ),
        only(A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH),
        only(A::CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED),
        only(A::CU_DEVICE_ATTRIBUTE_COOPERATIVE_MULTI_DEVICE_LAUNCH),
        (
            A::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
            A::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
        ),
        (
            A::CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED,
            A::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
        ),
        only(A::CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED),
        only(A::CU_DEVICE_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED),
        (
            A::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED,
            A::CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES,
        ),
        (
            A::CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED,
            A::CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED,
        ),
        only(A::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED),
        only(A::CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS),
        only(A::CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED),
        only(A::CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED),
        only(A::CU_DEVICE_ATTRIBUTE_HOST_ALLOC_DMA_BUF_SUPPORTED),
    ]
};

/// The recorded value.
pub(super) fn recorded(attribute: CUdevice_attribute) -> Option<i32> {
    let found = VALUES.binary_search_by_key(&attribute.0, |(number, _)| *number);
    found.ok().map(|index| VALUES[index].1)
}

/// The value that advertises no feature, if the recorded value advertises an unsupported one.
pub(super) fn without_advertising(attribute: CUdevice_attribute) -> Option<i32> {
    if attribute == CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT {
        // All kernels share one domain.
        return Some(1);
    }
    let is_absent = |(first, last): &(_, _)| (first..=last).contains(&&attribute);
    NOT_SIMULATED.iter().any(is_absent).then_some(0)
}
