//! Reductions of a block and of a warp in a fixed order.

use retrograph_ptx::build::{Kernel, Value};

/// Eight sums over the lanes of a warp; lanes `4i` to `4i + 3` return the sum of `values[i]`. Every
/// lane must execute it.
///
/// Lanes exchange values with the lane 16 away, then 8, then 4. Of each pair of lanes, one adds the
/// first half of the values of both and the other the second half, so a step halves the number of
/// values. Two butterfly steps follow. This takes 9 shuffles instead of 40.
pub(crate) fn warp_sum_of_eight<'k>(k: &Kernel<'k>, values: [Value<'k, f32>; 8]) -> Value<'k, f32> {
    let mut values = values.to_vec();
    for distance in [16, 8, 4] {
        let upper_half = (k.lane() & distance).ne(0);
        let upper = values.split_off(values.len() / 2);
        let exchange = |(lower, upper): (&Value<'k, f32>, &Value<'k, f32>)| {
            let kept = upper_half.select(*upper, *lower);
            kept + k.shfl_bfly(upper_half.select(*lower, *upper), distance)
        };
        values = values.iter().zip(&upper).map(exchange).collect();
    }
    [2, 1].into_iter().fold(values[0], |sum, distance| sum + k.shfl_bfly(sum, distance))
}

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
