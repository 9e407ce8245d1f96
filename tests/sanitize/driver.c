/* For compilers without libFuzzer: runs the corpus as it is, then programs made of it by random damage.
 *
 *   driver SEED SECONDS FILE...    the input that ended it, if any, is left in the file `damaged.bin`
 */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int sramtile_try(const uint8_t* data, size_t size);
void __sanitizer_set_death_callback(void (*callback)(void));

enum { MAX_BYTES = 1 << 20, HANG_SECONDS = 60 };

static uint8_t input[2 * MAX_BYTES]; /* what is run now */
static size_t input_bytes;

static void keep_input(void) {
  FILE* const file = fopen("damaged.bin", "wb");
  if (file == NULL) return;
  fwrite(input, 1, input_bytes, file);
  fclose(file);
}

static void hangs(int signal_number) {
  (void)signal_number;
  keep_input();
  _Exit(1);
}

static uint64_t state;

static uint64_t random_below(uint64_t limit) { /* splitmix64 */
  uint64_t z = state += 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return (z ^ z >> 31) % limit;
}

static void damage_word(void) {
  static const uint32_t EXTREMES[] = {0, 1, 2, 3, 16, 255, 65535, 65536, INT32_MAX, 1u << 31, UINT32_MAX - 3, UINT32_MAX};
  if (input_bytes < 4) return;
  const size_t at = random_below(input_bytes - 3);
  uint32_t word;
  memcpy(&word, input + at, 4);
  switch (random_below(4)) {
    case 0:
      word = EXTREMES[random_below(sizeof EXTREMES / sizeof *EXTREMES)];
      break;
    case 1:
      memcpy(&word, input + random_below(input_bytes - 3), 4);
      break;
    default:
      word += (uint32_t)random_below(9) * (random_below(2) ? 1 : 4) - 4;
  }
  memcpy(input + at, &word, 4);
}

static void damage(void) {
  for (uint64_t times = 1 + random_below(3); times > 0 && input_bytes > 0; times--) {
    switch (random_below(12)) {
      case 0:
        input_bytes = random_below(input_bytes + 1);
        break;
      case 1: /* a part of it twice */
        if (2 * input_bytes < sizeof input) {
          const size_t from = random_below(input_bytes), to = random_below(input_bytes);
          memmove(input + to, input + from, input_bytes - (from > to ? from : to));
        }
        break;
      case 2:
      case 3:
      case 4:
        input[random_below(input_bytes)] ^= (uint8_t)(1u << random_below(8));
        break;
      default:
        damage_word();
    }
  }
}

static int read_input(const char* path) {
  FILE* const file = fopen(path, "rb");
  if (file == NULL) return 0;
  input_bytes = fread(input, 1, MAX_BYTES, file);
  fclose(file);
  return 1;
}

int main(int argc, char** argv) {
  if (argc < 4) return fprintf(stderr, "usage: %s SEED SECONDS FILE...\n", argv[0]), 2;
  const uint64_t seed = strtoull(argv[1], NULL, 10);
  const time_t end = time(NULL) + atoi(argv[2]);
  const int files = argc - 3;
  int whole = 0;
  uint64_t ran = 0, refused = 0;
  __sanitizer_set_death_callback(keep_input);
  signal(SIGALRM, hangs);
  printf("seed %llu\n", (unsigned long long)seed);
  for (int index = 0; index < files; index++) {
    if (!read_input(argv[3 + index])) return fprintf(stderr, "%s: cannot be read\n", argv[3 + index]), 2;
    whole += sramtile_try(input, input_bytes);
  }
  state = seed;
  while (time(NULL) < end) {
    if (!read_input(argv[3 + random_below((uint64_t)files)])) return 2;
    damage();
    alarm(HANG_SECONDS); /* a program that takes so long is a finding, too */
    if (sramtile_try(input, input_bytes)) {
      ran++;
    } else {
      refused++;
    }
  }
  printf("%d of %d programs of the corpus ran; damaged: %llu refused, %llu ran\n", whole, files,
         (unsigned long long)refused, (unsigned long long)ran);
  return 10 * whole >= 9 * files && ran > 0 && refused > 0 ? 0 : 1; /* some have no room for as many images */
}
