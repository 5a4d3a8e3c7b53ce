/* Digits of a digital clock, with noise (Breiman et al., 1984): the same samples in every language. */
#ifndef DIGITS_H
#define DIGITS_H

#include <accel.h>
#include <stdint.h>

enum { SEGMENTS = 7, DIGITS = 10 };

static inline uint32_t digits_random(uint32_t *random) { return *random = *random * 1664525u + 1013904223u; }

/* Fills features [samples, SEGMENTS] and labels [samples]. */
static inline void digits_fill(uint32_t random, int64_t samples, float *features, int64_t *labels) {
  static const unsigned char segments[DIGITS] = {0x77, 0x24, 0x5d, 0x6d, 0x2e, 0x6b, 0x7b, 0x25, 0x7f, 0x6f};
  for (int64_t n = 0; n < samples; n++) {
    labels[n] = (digits_random(&random) >> 16) % DIGITS;
    for (int i = 0; i < SEGMENTS; i++) {
      const float noise = (float)(digits_random(&random) >> 24) / 128.0f - 1.0f;
      features[n * SEGMENTS + i] = (float)(segments[labels[n]] >> i & 1) + noise;
    }
  }
}

#endif
