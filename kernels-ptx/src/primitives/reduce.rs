//! Block reductions in a fixed order.

use retrograph_ptx::build::{Kernel, Value};

/// Returns to thread 0 the sum of `value` over the `threads` threads of the block, a power of two.
///
/// A tree reduction in shared memory, so the order is always the same. A kernel may call it once.
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
    // Thread 0 wrote the total itself; any other thread would need one more barrier to read it.
    let total = k.var(0.0_f64);
    k.when(thread.eq(0), || total.set(sums.load(0)));
    total.get()
}
