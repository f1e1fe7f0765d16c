#ifndef GLYD_BASE_INTERNAL_SHA256_NI_H_
#define GLYD_BASE_INTERNAL_SHA256_NI_H_

#include <cstddef>
#include <cstdint>

namespace glyd::internal {

// SHA-256's compression function (FIPS 180-4, 6.2) by the x86 SHA instructions, over whole blocks
// of 64 bytes.

bool HasShaInstructions();

// The others are called only where that is true. `state` is H0 to H7.
void CompressNi(uint32_t state[8], const uint8_t* data, size_t blocks);
// Two messages, `blocks` of each, with their instructions interleaved.
void CompressPairNi(uint32_t state_a[8], const uint8_t* data_a, uint32_t state_b[8],
                    const uint8_t* data_b, size_t blocks);

}  // namespace glyd::internal

#endif  // GLYD_BASE_INTERNAL_SHA256_NI_H_
