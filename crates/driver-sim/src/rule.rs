//! The rules that decide which error a call returns.
//!
//! A rule names one path of the simulator that refuses a call. The index of recorded traces
//! (`attested.txt`) lists rules by their names, so that each error can be traced to a recording.

use std::fmt;

macro_rules! rules {
    ($($rule:ident = $name:literal,)*) => {
        /// A rule by which the simulator refuses a call.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Rule {
            $(#[doc = concat!("The rule `", $name, "`.")] $rule,)*
        }

        impl Rule {
            /// All rules.
            #[cfg(test)]
            pub(crate) const ALL: &[Self] = &[$(Self::$rule),*];

            /// The name that the index of recorded traces uses.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$rule => $name,)*
                }
            }

            /// The rule of a name.
            pub(crate) fn from_name(name: &str) -> Option<Self> {
                Some(match name {
                    $($name => Self::$rule,)*
                    _ => return None,
                })
            }
        }
    };
}

rules! {
    BoxHeight = "box.height",
    BoxPitch = "box.pitch",
    CaptureBegun = "capture.begun",
    CaptureBreaks = "capture.breaks",
    CaptureEdgeType = "capture.edge_type",
    CaptureGraphInUse = "capture.graph_in_use",
    CaptureInvalidated = "capture.invalidated",
    CaptureMode = "capture.mode",
    CaptureNodeOfOtherGraph = "capture.node_of_other_graph",
    CaptureNone = "capture.none",
    CaptureOfLegacy = "capture.of_legacy",
    CaptureStatusOfLegacy = "capture.status_of_legacy",
    CaptureUpdateFlags = "capture.update_flags",
    ClusterExplicit = "cluster.explicit",
    ClusterGrid = "cluster.grid",
    ClusterRank = "cluster.rank",
    ClusterRequired = "cluster.required",
    ClusterSize = "cluster.size",
    ContextCache = "context.cache",
    ContextDestroyed = "context.destroyed",
    ContextEmpty = "context.empty",
    ContextFlags = "context.flags",
    ContextNone = "context.none",
    ContextPrimary = "context.primary",
    ContextUnknown = "context.unknown",
    CopyExtent = "copy.extent",
    CopyNoArray = "copy.no_array",
    DeviceAttribute = "device.attribute",
    DeviceDeviceIndex = "device.device_index",
    DotCuGraphDebugDotPrint = "dot.cuGraphDebugDotPrint",
    ErrorsCuGetErrorName = "errors.cuGetErrorName",
    ErrorsCuGetErrorString = "errors.cuGetErrorString",
    ErrorsCuInit = "errors.cuInit",
    ErrorsCuInit2 = "errors.cuInit.2",
    EventCaptureOver = "event.capture_over",
    EventCaptured = "event.captured",
    EventExternalEager = "event.external_eager",
    EventFlags = "event.flags",
    EventNoTime = "event.no_time",
    EventNull = "event.null",
    EventNullTime = "event.null_time",
    EventOtherDevice = "event.other_device",
    EventRecordFlags = "event.record_flags",
    EventWaitFlags = "event.wait_flags",
    Fault = "fault",
    FillMisaligned = "fill.misaligned",
    FillPitch = "fill.pitch",
    FillTarget = "fill.target",
    FunctionAttribute = "function.attribute",
    FunctionCache = "function.cache",
    FunctionCarveout = "function.carveout",
    FunctionCluster = "function.cluster",
    FunctionName = "function.name",
    FunctionNull = "function.null",
    FunctionParameter = "function.parameter",
    FunctionPolicy = "function.policy",
    FunctionShared = "function.shared",
    FunctionUnknown = "function.unknown",
    FunctionUnnamed = "function.unnamed",
    GlobalKernel = "global.kernel",
    GlobalName = "global.name",
    GraphAlwaysEnabled = "graph.always_enabled",
    GraphAnotherKind = "graph.another_kind",
    GraphAnotherShape = "graph.another_shape",
    GraphAttribute = "graph.attribute",
    GraphBlock = "graph.block",
    GraphCycle = "graph.cycle",
    GraphEdgeAgain = "graph.edge_again",
    GraphEdgeKind = "graph.edge_kind",
    GraphEdgePlaces = "graph.edge_places",
    GraphFlags = "graph.flags",
    GraphInstantiateFlags = "graph.instantiate_flags",
    GraphLossy = "graph.lossy",
    GraphLost = "graph.lost",
    GraphNoContext = "graph.no_context",
    GraphNoEdge = "graph.no_edge",
    GraphNoRoom = "graph.no_room",
    GraphNoWidth = "graph.no_width",
    GraphNodeOfOtherGraph = "graph.node_of_other_graph",
    GraphNodeType = "graph.node_type",
    GraphNotCloned = "graph.not_cloned",
    GraphNotForDevices = "graph.not_for_devices",
    GraphNotInExec = "graph.not_in_exec",
    GraphNotReplaceable = "graph.not_replaceable",
    GraphNull = "graph.null",
    GraphNullEvent = "graph.null_event",
    GraphNullExec = "graph.null_exec",
    GraphNullNode = "graph.null_node",
    GraphOwned = "graph.owned",
    GraphPitch = "graph.pitch",
    GraphReserved = "graph.reserved",
    GraphSelfEdge = "graph.self_edge",
    GraphTwice = "graph.twice",
    GraphTwoParameterLists = "graph.two_parameter_lists",
    GraphUpdate = "graph.update",
    GraphMemoryAccess = "graph_memory.access",
    GraphMemoryAttribute = "graph_memory.attribute",
    GraphMemoryCopy = "graph_memory.copy",
    GraphMemoryDevice = "graph_memory.device",
    GraphMemoryExhausted = "graph_memory.exhausted",
    GraphMemoryFixed = "graph_memory.fixed",
    GraphMemoryFreed = "graph_memory.freed",
    GraphMemoryHandleTypes = "graph_memory.handle_types",
    GraphMemoryLaunchedAgain = "graph_memory.launched_again",
    GraphMemoryProperties = "graph_memory.properties",
    GraphMemoryReset = "graph_memory.reset",
    GraphMemorySecondExec = "graph_memory.second_exec",
    GraphMemorySize = "graph_memory.size",
    GraphMemoryState = "graph_memory.state",
    GraphMemoryUnknown = "graph_memory.unknown",
    HostBeyond = "host.beyond",
    HostFlags = "host.flags",
    HostHuge = "host.huge",
    HostInside = "host.inside",
    HostNull = "host.null",
    HostPinned = "host.pinned",
    HostRegister = "host.register",
    HostRegistered = "host.registered",
    HostUnknown = "host.unknown",
    HostUnregistered = "host.unregistered",
    Injected = "injected",
    JitCacheMode = "jit.cache_mode",
    JitLog = "jit.log",
    JitNoTarget = "jit.no_target",
    JitOption = "jit.option",
    JitRegisters = "jit.registers",
    JitTarget = "jit.target",
    KernelName = "kernel.name",
    LaunchAttribute = "launch.attribute",
    LaunchAttributeEvent = "launch.attribute_event",
    LaunchAttributeOfNodes = "launch.attribute_of_nodes",
    LaunchAttributeValue = "launch.attribute_value",
    LaunchBoth = "launch.both",
    LaunchBound = "launch.bound",
    LaunchCooperative = "launch.cooperative",
    LaunchExtra = "launch.extra",
    LaunchExtraBlock = "launch.extra_block",
    LaunchExtraSize = "launch.extra_size",
    LaunchGeometry = "launch.geometry",
    LaunchOtherContext = "launch.other_context",
    LaunchParameters = "launch.parameters",
    LaunchRequired = "launch.required",
    LaunchShared = "launch.shared",
    LibraryKernel = "library.kernel",
    LibraryManaged = "library.managed",
    LibraryNoKernel = "library.no_kernel",
    LibraryNull = "library.null",
    LimitFetch = "limit.fetch",
    LimitPersisting = "limit.persisting",
    LimitReadOnly = "limit.read_only",
    LimitStack = "limit.stack",
    LimitUnknown = "limit.unknown",
    LimitUnsupported = "limit.unsupported",
    LinkComplete = "link.complete",
    LinkCompleteAgain = "link.complete_again",
    LinkDefinedTwice = "link.defined_twice",
    LinkEmpty = "link.empty",
    LinkKind = "link.kind",
    LinkNoImage = "link.no_image",
    LinkNoObject = "link.no_object",
    LinkNvvm = "link.nvvm",
    LinkUndefined = "link.undefined",
    ManagedAdvice = "managed.advice",
    ManagedAttribute = "managed.attribute",
    ManagedBatch = "managed.batch",
    ManagedFlags = "managed.flags",
    ManagedLocation = "managed.location",
    ManagedRange = "managed.range",
    ManagedSize = "managed.size",
    MemoryAddress = "memory.address",
    MemoryElement = "memory.element",
    MemoryExhausted = "memory.exhausted",
    MemoryNoRows = "memory.no_rows",
    MemoryNotCaptured = "memory.not_captured",
    MemoryRange = "memory.range",
    MemoryUncountable = "memory.uncountable",
    MemoryUnknown = "memory.unknown",
    ModuleFile = "module.file",
    ModuleFileName = "module.file_name",
    ModuleFolder = "module.folder",
    ModuleIsa = "module.isa",
    ModuleLibrary = "module.library",
    ModuleNoImage = "module.no_image",
    ModuleTarget = "module.target",
    ModuleText = "module.text",
    ModuleUndefined = "module.undefined",
    ModuleUnknown = "module.unknown",
    Null = "null",
    ObjectUnknown = "object.unknown",
    OccupancyBlocks = "occupancy.blocks",
    OccupancyFlags = "occupancy.flags",
    OccupancyLimit = "occupancy.limit",
    OccupancyNoFunction = "occupancy.no_function",
    OccupancyNoThreads = "occupancy.no_threads",
    OccupancyThreads = "occupancy.threads",
    ParametersEnd = "parameters.end",
    ParametersEnd2 = "parameters.end.2",
    ParametersEnd3 = "parameters.end.3",
    ParametersEnds = "parameters.ends",
    PeerAttribute = "peer.attribute",
    PeerCopyExtent = "peer.copy_extent",
    PeerEnabled = "peer.enabled",
    PeerFlags = "peer.flags",
    PeerNoContext = "peer.no_context",
    PeerNotEnabled = "peer.not_enabled",
    PeerSame = "peer.same",
    Pending = "pending",
    PointerAttribute = "pointer.attribute",
    PointerDevice = "pointer.device",
    PointerUnknown = "pointer.unknown",
    PoolAccess = "pool.access",
    PoolAttribute = "pool.attribute",
    PoolDefault = "pool.default",
    PoolDevice = "pool.device",
    PoolExhausted = "pool.exhausted",
    PoolHandles = "pool.handles",
    PoolHost = "pool.host",
    PoolKind = "pool.kind",
    PoolLocation = "pool.location",
    PoolNode = "pool.node",
    PoolOwn = "pool.own",
    PoolReadOnly = "pool.read_only",
    PoolUnknown = "pool.unknown",
    PrimaryMapped = "primary.mapped",
    PrimaryReleased = "primary.released",
    Sticky = "sticky",
    StreamAttribute = "stream.attribute",
    StreamFlags = "stream.flags",
    StreamSpecial = "stream.special",
    SymbolsFlags = "symbols.flags",
    SymbolsVersion = "symbols.version",
    TensorMap = "tensor_map",
    Undefined = "undefined",
    Uninitialized = "uninitialized",
    UninitializedArgument = "uninitialized.argument",
    Unsupported = "unsupported",
    UserObjectCount = "user_object.count",
    UserObjectFlags = "user_object.flags",
    UserObjectNull = "user_object.null",
}

impl Rule {
    /// Whether the rule refuses missing or malformed parameters of a launch. Such a launch leaves
    /// the capture of its stream intact.
    pub(crate) fn is_about_parameters(self) -> bool {
        matches!(
            self,
            Self::Null
                | Self::LaunchParameters
                | Self::LaunchBoth
                | Self::LaunchExtra
                | Self::LaunchExtraBlock
                | Self::LaunchExtraSize
        )
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
