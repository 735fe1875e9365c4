//! Buckets: sizes to which shapes are rounded up, so that few programs serve many shapes.
//!
//! A graph is built for one shape. If the shape varies, as the length of a text does, one program
//! is built per bucket, and data is padded to the smallest bucket that fits.
//!
//! ```
//! use retrograph_runtime::program::Buckets;
//!
//! let lengths = Buckets::powers_of_two(1000)?;
//! assert_eq!([1, 3, 512, 513].map(|length| lengths.fit(length).unwrap()), [1, 4, 512, 1000]);
//! assert!(lengths.fit(1001).is_err());
//! # Ok::<(), retrograph_runtime::program::ShapeError>(())
//! ```

use std::fmt;

/// Sizes to which one axis of a shape is rounded up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buckets {
    sizes: Sizes,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Sizes {
    /// Ascending, each once, none of them 0.
    List(Vec<usize>),
    PowersOfTwo {
        largest: usize,
    },
    Multiples {
        of: usize,
        largest: usize,
    },
}

/// A shape without a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ShapeError {
    /// The shape is larger than the largest bucket.
    #[error("{asked} positions do not fit: the largest bucket has {largest}; add a larger one")]
    TooLarge {
        /// Positions asked for.
        asked: usize,
        /// The largest bucket.
        largest: usize,
    },
    /// No bucket was given, or one of size 0.
    #[error("there is no bucket; name at least one size, all above 0")]
    NoBucket,
}

impl Buckets {
    /// Buckets of exactly these sizes, in any order.
    ///
    /// # Errors
    /// [`ShapeError::NoBucket`] if there is none, or one is 0.
    pub fn list(sizes: impl IntoIterator<Item = usize>) -> Result<Self, ShapeError> {
        let mut sizes: Vec<usize> = sizes.into_iter().collect();
        sizes.sort_unstable();
        sizes.dedup();
        match sizes.first() {
            None | Some(0) => Err(ShapeError::NoBucket),
            Some(_) => Ok(Self { sizes: Sizes::List(sizes) }),
        }
    }

    /// 1, 2, 4 and so on, below `largest`, and `largest` itself.
    ///
    /// # Errors
    /// [`ShapeError::NoBucket`] if `largest` is 0.
    pub fn powers_of_two(largest: usize) -> Result<Self, ShapeError> {
        Self::up_to(largest, Sizes::PowersOfTwo { largest })
    }

    /// The multiples of `of` below `largest`, and `largest` itself.
    ///
    /// # Errors
    /// [`ShapeError::NoBucket`] if `of` or `largest` is 0.
    pub fn multiples_of(of: usize, largest: usize) -> Result<Self, ShapeError> {
        Self::up_to(of.min(largest), Sizes::Multiples { of, largest })
    }

    fn up_to(least: usize, sizes: Sizes) -> Result<Self, ShapeError> {
        if least == 0 { Err(ShapeError::NoBucket) } else { Ok(Self { sizes }) }
    }

    /// The largest size.
    pub fn largest(&self) -> usize {
        match &self.sizes {
            Sizes::List(sizes) => sizes.last().copied().unwrap_or(0),
            Sizes::PowersOfTwo { largest } | Sizes::Multiples { largest, .. } => *largest,
        }
    }

    /// Every size, ascending, for example to prewarm a pass of each.
    ///
    /// ```
    /// let lengths = retrograph_runtime::program::Buckets::multiples_of(256, 600)?;
    /// assert_eq!(lengths.sizes().collect::<Vec<_>>(), [256, 512, 600]);
    /// # Ok::<(), retrograph_runtime::program::ShapeError>(())
    /// ```
    pub fn sizes(&self) -> impl Iterator<Item = usize> {
        std::iter::successors(self.fit(1).ok(), |size| self.fit(size.checked_add(1)?).ok())
    }

    /// The smallest size of at least `asked` positions.
    ///
    /// # Errors
    /// [`ShapeError::TooLarge`].
    pub fn fit(&self, asked: usize) -> Result<usize, ShapeError> {
        let largest = self.largest();
        if asked > largest {
            return Err(ShapeError::TooLarge { asked, largest });
        }
        let at_least_one = asked.max(1);
        let size = match &self.sizes {
            Sizes::List(sizes) => sizes[sizes.partition_point(|size| *size < asked)],
            Sizes::PowersOfTwo { .. } => {
                at_least_one.checked_next_power_of_two().unwrap_or(largest)
            }
            Sizes::Multiples { of, .. } => {
                at_least_one.checked_next_multiple_of(*of).unwrap_or(largest)
            }
        };
        Ok(size.min(largest))
    }
}

/// A shape and the sizes that it was rounded up to, axis by axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket<const N: usize> {
    /// The requested shape.
    pub asked: [usize; N],
    /// The shape of the program.
    pub size: [usize; N],
}

impl<const N: usize> Bucket<N> {
    /// The bucket of a shape.
    ///
    /// # Errors
    /// The first axis that is too large, and the reason.
    pub fn of(asked: [usize; N], buckets: &[Buckets; N]) -> Result<Self, (usize, ShapeError)> {
        let mut size = asked;
        for (axis, (size, buckets)) in size.iter_mut().zip(buckets).enumerate() {
            *size = buckets.fit(*size).map_err(|error| (axis, error))?;
        }
        Ok(Self { asked, size })
    }

    /// Number of padding positions at the end of `axis`.
    ///
    /// # Panics
    /// If there is no such axis.
    pub fn padding(&self, axis: usize) -> usize {
        self.size[axis] - self.asked[axis]
    }

    /// Number of padding positions of the whole shape; `usize::MAX` if the shape has more positions
    /// than that.
    pub fn padded_positions(&self) -> usize {
        let product = |sizes: &[usize; N]| {
            sizes.iter().try_fold(1_usize, |product, &size| product.checked_mul(size))
        };
        match (product(&self.size), product(&self.asked)) {
            (Some(size), Some(asked)) => size - asked,
            _ => usize::MAX,
        }
    }
}

impl<const N: usize> fmt::Display for Bucket<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} in {:?}", self.asked, self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_bucket_that_fits_is_taken() {
        let list = Buckets::list([300, 8, 100, 8]).unwrap();
        assert_eq!([0, 8, 9, 300].map(|asked| list.fit(asked).unwrap()), [8, 8, 100, 300]);
        let powers = Buckets::powers_of_two(100).unwrap();
        let asked = [0, 1, 2, 3, 64, 65, 100];
        assert_eq!(asked.map(|asked| powers.fit(asked).unwrap()), [1, 1, 2, 4, 64, 100, 100]);
        let multiples = Buckets::multiples_of(16, 40).unwrap();
        let asked = [0, 1, 16, 17, 32, 33, 40];
        let sizes = asked.map(|asked| multiples.fit(asked).unwrap());
        assert_eq!(sizes, [16, 16, 16, 32, 32, 40, 40]);
        assert_eq!(Buckets::multiples_of(64, 40).unwrap().fit(1), Ok(40));
        let all = |buckets: Buckets| buckets.sizes().collect::<Vec<_>>();
        assert_eq!(all(list), [8, 100, 300]);
        assert_eq!(all(powers), [1, 2, 4, 8, 16, 32, 64, 100]);
        assert_eq!(all(multiples), [16, 32, 40]);
        assert_eq!(Buckets::powers_of_two(usize::MAX).unwrap().sizes().count(), 65);
        assert_eq!(Buckets::powers_of_two(usize::MAX).unwrap().fit(usize::MAX), Ok(usize::MAX));
    }

    #[test]
    fn a_size_beyond_the_largest_bucket_is_refused_with_both_sizes() {
        for buckets in [
            Buckets::list([7, 50]).unwrap(),
            Buckets::powers_of_two(50).unwrap(),
            Buckets::multiples_of(8, 50).unwrap(),
        ] {
            let error = buckets.fit(51).unwrap_err();
            assert_eq!(error, ShapeError::TooLarge { asked: 51, largest: 50 });
            let text = error.to_string();
            assert!(text.contains("51") && text.contains("50"), "{text}");
        }
    }

    #[test]
    fn buckets_without_positions_are_refused() {
        assert_eq!(Buckets::list([]), Err(ShapeError::NoBucket));
        assert_eq!(Buckets::list([3, 0]), Err(ShapeError::NoBucket));
        assert_eq!(Buckets::powers_of_two(0), Err(ShapeError::NoBucket));
        assert_eq!(Buckets::multiples_of(0, 9), Err(ShapeError::NoBucket));
        assert_eq!(Buckets::multiples_of(9, 0), Err(ShapeError::NoBucket));
    }

    #[test]
    fn padding_is_counted_by_axis_and_in_all() {
        let buckets = [Buckets::list([2, 4]).unwrap(), Buckets::powers_of_two(64).unwrap()];
        let bucket = Bucket::of([3, 20], &buckets).unwrap();
        assert_eq!((bucket.size, bucket.padding(0), bucket.padding(1)), ([4, 32], 1, 12));
        assert_eq!(bucket.padded_positions(), 4 * 32 - 3 * 20);
        let huge = Bucket { asked: [usize::MAX, 2], size: [usize::MAX, 4] };
        assert_eq!(huge.padded_positions(), usize::MAX, "more than can be counted");
        let (axis, error) = Bucket::of([3, 65], &buckets).unwrap_err();
        assert_eq!((axis, error), (1, ShapeError::TooLarge { asked: 65, largest: 64 }));
    }
}
