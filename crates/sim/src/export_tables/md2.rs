//! The hash function MD2 (RFC 1319), and HMAC (RFC 2104) with it. Both are obsolete as protection.

/// Bytes of a block, of a hash and of a key.
const BLOCK: usize = 16;

/// The permutation of RFC 1319, made from digits of pi.
#[rustfmt::skip]
const PI: [u8; 256] = [
    41, 46, 67, 201, 162, 216, 124, 1, 61, 54, 84, 161, 236, 240, 6, 19,
    98, 167, 5, 243, 192, 199, 115, 140, 152, 147, 43, 217, 188, 76, 130, 202,
    30, 155, 87, 60, 253, 212, 224, 22, 103, 66, 111, 24, 138, 23, 229, 18,
    190, 78, 196, 214, 218, 158, 222, 73, 160, 251, 245, 142, 187, 47, 238, 122,
    169, 104, 121, 145, 21, 178, 7, 63, 148, 194, 16, 137, 11, 34, 95, 33,
    128, 127, 93, 154, 90, 144, 50, 39, 53, 62, 204, 231, 191, 247, 151, 3,
    255, 25, 48, 179, 72, 165, 181, 209, 215, 94, 146, 42, 172, 86, 170, 198,
    79, 184, 56, 210, 150, 164, 125, 182, 118, 252, 107, 226, 156, 116, 4, 241,
    69, 157, 112, 89, 100, 113, 135, 32, 134, 91, 207, 101, 230, 45, 168, 2,
    27, 96, 37, 173, 174, 176, 185, 246, 28, 70, 97, 105, 52, 64, 126, 15,
    85, 71, 163, 35, 221, 81, 175, 58, 195, 92, 249, 206, 186, 197, 234, 38,
    44, 83, 13, 110, 133, 40, 132, 9, 211, 223, 205, 244, 65, 129, 77, 82,
    106, 220, 55, 200, 108, 193, 171, 250, 36, 225, 123, 8, 12, 189, 177, 74,
    120, 136, 149, 139, 227, 99, 232, 109, 233, 203, 213, 254, 59, 0, 29, 57,
    242, 239, 183, 14, 102, 88, 208, 228, 166, 119, 114, 248, 235, 117, 75, 10,
    49, 68, 80, 180, 143, 237, 31, 26, 219, 153, 141, 51, 159, 17, 131, 20,
];

/// The hash of a message.
fn hash(message: &[u8]) -> [u8; BLOCK] {
    let pad = BLOCK - message.len() % BLOCK;
    let mut padded = message.to_vec();
    padded.resize(message.len() + pad, pad as u8);
    let checksum = checksum(&padded);
    padded.extend(checksum);
    let mut state = [0; BLOCK];
    padded.chunks_exact(BLOCK).for_each(|block| mix(&mut state, block));
    state
}

/// The checksum that the hash appends to its message.
fn checksum(padded: &[u8]) -> [u8; BLOCK] {
    let (mut sum, mut last) = ([0; BLOCK], 0);
    for (index, byte) in padded.iter().enumerate() {
        let place = &mut sum[index % BLOCK];
        *place ^= PI[usize::from(byte ^ last)];
        last = *place;
    }
    sum
}

/// Adds a block to the state, in 18 rounds.
fn mix(state: &mut [u8; BLOCK], block: &[u8]) {
    let mut words = [0; 3 * BLOCK];
    for (index, byte) in block.iter().enumerate() {
        words[index] = state[index];
        words[index + BLOCK] = *byte;
        words[index + 2 * BLOCK] = byte ^ state[index];
    }
    let mut last = 0;
    for round in 0..18 {
        for word in &mut words {
            *word ^= PI[usize::from(last)];
            last = *word;
        }
        last = last.wrapping_add(round);
    }
    state.copy_from_slice(&words[..BLOCK]);
}

/// The HMAC of a message.
pub(super) fn hmac(key: [u8; BLOCK], message: &[u8]) -> [u8; BLOCK] {
    let keyed = |mask: u8, message: &[u8]| {
        hash(&[key.map(|byte| byte ^ mask).as_slice(), message].concat())
    };
    keyed(0x5c, &keyed(0x36, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(hash: [u8; BLOCK]) -> String {
        hash.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The test suite of RFC 1319.
    #[test]
    fn hashes_are_as_in_the_rfc() {
        let cases = [
            ("", "8350e5a3e24c153df2275c9f80692773"),
            ("a", "32ec01ec4a6dac72c0ab96fb34c0b5d1"),
            ("abc", "da853b0d3f88d99b30283a69e6ded6bb"),
            ("message digest", "ab4f496bfb2a530b219ff33031fe06b0"),
            ("abcdefghijklmnopqrstuvwxyz", "4e8ddff3650292ab5a4108c3aa47940b"),
        ];
        for (message, expected) in cases {
            assert_eq!(text(hash(message.as_bytes())), expected, "{message}");
        }
    }
}
