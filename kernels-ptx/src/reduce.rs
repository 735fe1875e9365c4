//! Sums over a block in a fixed order.

use retrograph_ptx::build::{Kernel, Value};

/// The sum of `value` over the `threads` threads of the block, a power of two, for thread 0.
///
/// Halves are added to halves until one is left, which is the same order each time. A kernel may
/// use it once.
pub(crate) fn block_sum_f64<'k>(
    k: &Kernel<'k>,
    value: Value<'k, f64>,
    threads: u32,
) -> Value<'k, f64> {
    let sums = k.shared::<f64>("sums", threads as usize);
    let thread = k.tid_x();
    sums.store(thread, value);
    let mut half = threads / 2;
    while half > 0 {
        k.barrier();
        k.when(thread.lt(half), || {
            sums.store(thread, sums.load(thread) + sums.load(thread + half));
        });
        half /= 2;
    }
    // Thread 0 wrote the last sum itself; no other thread may read it without another barrier.
    let total = k.var(0.0_f64);
    k.when(thread.eq(0), || total.set(sums.load(0)));
    total.get()
}
