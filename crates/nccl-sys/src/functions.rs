//! Every function of the table, once: [`nccl_functions!`](crate::nccl_functions).

/// Passes the list of all functions to a macro.
///
/// `nccl_functions!(my_macro)` expands to `my_macro! { required { … } optional { … } }`. Each
/// function is declared as in nccl.h under its exact exported symbol, with names and types of its
/// arguments. NCCL exports the required functions from version 2.18 on. The optional functions all
/// return `ncclResult_t`; `since` is the first version that exports them, as 10000 × major + 100 ×
/// minor + patch.
///
/// ```
/// macro_rules! names {
///     (
///         required { $($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),*) -> $r:ty;)* }
///         optional {
///             $($(#[$o_doc:meta])* fn $o_name:ident($($o_arg:ident: $o_type:ty),*)
///                 since $since:literal;)*
///         }
///     ) => {
///         [$(stringify!($name),)* $(stringify!($o_name)),*]
///     };
/// }
/// let names = retrograph_nccl_sys::nccl_functions!(names);
/// assert!(names.contains(&"ncclAllReduce"));
/// ```
#[macro_export]
macro_rules! nccl_functions {
    ($callback:ident) => {
        $callback! {
            required {
                /// Writes the version, as 10000 × major + 100 × minor + patch.
                fn ncclGetVersion(version: *mut i32) -> $crate::ncclResult_t;
                /// Writes the unique id of a new communicator. The calling process must live until
                /// all ranks have joined.
                fn ncclGetUniqueId(id: *mut $crate::ncclUniqueId) -> $crate::ncclResult_t;
                /// Joins a communicator as `rank` on the current device. Returns when all ranks
                /// have joined.
                fn ncclCommInitRank(
                    comm: *mut $crate::ncclComm_t, ranks: i32, id: $crate::ncclUniqueId, rank: i32
                ) -> $crate::ncclResult_t;
                /// Begins to end all operations. Optional: `ncclCommDestroy` does it otherwise.
                /// `ncclCommGetAsyncError` writes `ncclInProgress` until all ranks have completed
                /// theirs; destroy the communicator after that.
                fn ncclCommFinalize(comm: $crate::ncclComm_t) -> $crate::ncclResult_t;
                /// Frees a communicator. It waits for the graphs that its operations were captured
                /// into.
                fn ncclCommDestroy(comm: $crate::ncclComm_t) -> $crate::ncclResult_t;
                /// Aborts running operations, whose results are then undefined, and frees the
                /// communicator. Any thread may call it.
                fn ncclCommAbort(comm: $crate::ncclComm_t) -> $crate::ncclResult_t;
                /// Writes the first asynchronous error of operations.
                fn ncclCommGetAsyncError(
                    comm: $crate::ncclComm_t, error: *mut $crate::ncclResult_t
                ) -> $crate::ncclResult_t;
                /// Returns a text about the last error, valid until the next one.
                fn ncclGetLastError(comm: $crate::ncclComm_t) -> *const $crate::c_char;
                /// Writes the number of ranks.
                fn ncclCommCount(
                    comm: $crate::ncclComm_t, count: *mut i32
                ) -> $crate::ncclResult_t;
                /// Writes the device.
                fn ncclCommCuDevice(
                    comm: $crate::ncclComm_t, device: *mut i32
                ) -> $crate::ncclResult_t;
                /// Writes the rank.
                fn ncclCommUserRank(
                    comm: $crate::ncclComm_t, rank: *mut i32
                ) -> $crate::ncclResult_t;
                /// Enqueues a reduction of `count` elements; all ranks get the result. Both buffers
                /// may be the same.
                fn ncclAllReduce(
                    send: *const $crate::c_void, receive: *mut $crate::c_void, count: usize,
                    data_type: $crate::ncclDataType_t, operation: $crate::ncclRedOp_t,
                    comm: $crate::ncclComm_t, stream: $crate::CUstream
                ) -> $crate::ncclResult_t;
                /// Enqueues a reduction of ranks × `receive_count` elements, of which each rank
                /// gets its block. `receive` may be the own block of `send`.
                fn ncclReduceScatter(
                    send: *const $crate::c_void, receive: *mut $crate::c_void, receive_count: usize,
                    data_type: $crate::ncclDataType_t, operation: $crate::ncclRedOp_t,
                    comm: $crate::ncclComm_t, stream: $crate::CUstream
                ) -> $crate::ncclResult_t;
                /// Enqueues the concatenation of `send_count` elements of each rank; all ranks get
                /// the result. `send` may be the own block of `receive`.
                fn ncclAllGather(
                    send: *const $crate::c_void, receive: *mut $crate::c_void, send_count: usize,
                    data_type: $crate::ncclDataType_t, comm: $crate::ncclComm_t,
                    stream: $crate::CUstream
                ) -> $crate::ncclResult_t;
                /// Enqueues a copy of `count` elements from the rank `root` to all others.
                fn ncclBroadcast(
                    send: *const $crate::c_void, receive: *mut $crate::c_void, count: usize,
                    data_type: $crate::ncclDataType_t, root: i32, comm: $crate::ncclComm_t,
                    stream: $crate::CUstream
                ) -> $crate::ncclResult_t;
                /// Starts a group of operations, which NCCL merges into few launches.
                fn ncclGroupStart() -> $crate::ncclResult_t;
                /// Ends the group and enqueues its operations.
                fn ncclGroupEnd() -> $crate::ncclResult_t;
            }
            optional {
                /// As `ncclCommInitRank`, with a configuration, for example
                /// [`ncclConfig_v22800`]($crate::ncclConfig_v22800) of NCCL 2.28.
                fn ncclCommInitRankConfig(
                    comm: *mut $crate::ncclComm_t, ranks: i32, id: $crate::ncclUniqueId,
                    rank: i32, config: *mut $crate::c_void
                ) since 21803;
                /// Allocates device memory that other ranks can map.
                fn ncclMemAlloc(place: *mut *mut $crate::c_void, size: usize) since 21903;
                /// Frees memory of `ncclMemAlloc`.
                fn ncclMemFree(memory: *mut $crate::c_void) since 21903;
                /// Registers memory of `ncclMemAlloc` as a window with all ranks, which must call
                /// it with equal sizes. Writes null if ranks cannot map each other's memory.
                fn ncclCommWindowRegister(
                    comm: $crate::ncclComm_t, memory: *mut $crate::c_void, size: usize,
                    window: *mut $crate::ncclWindow_t, flags: i32
                ) since 22703;
                /// Deregisters a window, which no rank may use afterwards.
                fn ncclCommWindowDeregister(
                    comm: $crate::ncclComm_t, window: $crate::ncclWindow_t
                ) since 22703;
            }
        }
    };
}
