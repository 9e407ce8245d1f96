/* The texts of errors. */
#include <inttypes.h>
#include <stdio.h>

#include "machine.h"

static const char* text_of(int32_t code) {
  switch (code) {
#define ERROR_CASE(number, name, text) \
  case number:                         \
    return text;
    SRAMTILE_ERRORS(ERROR_CASE)
#undef ERROR_CASE
    default:
      return "unknown error";
  }
}

static int32_t write_message(const struct sramtile_fault* at, int32_t code, const char* field, const char* value) {
  char where[64] = "";
  if (at->index >= 0) {
    snprintf(where, sizeof where, " %" PRId64, at->index);
  }
  if (at->message != NULL && at->message_bytes > 0) {
    const char* const name = at->command != NULL ? at->command : "";
    const char* const open = at->command != NULL ? " (" : "";
    const char* const close = at->command != NULL ? ")" : "";
    snprintf(at->message, (size_t)at->message_bytes, "%s%s%s%s%s: %s = %s: %s", at->part, where, open, name, close,
             field, value, text_of(code));
  }
  return code;
}

int32_t sramtile_fail(const struct sramtile_fault* at, int32_t code, const char* field, uint64_t value) {
  char text[32];
  snprintf(text, sizeof text, "%" PRIu64, value);
  return write_message(at, code, field, text);
}

int32_t sramtile_fail_signed(const struct sramtile_fault* at, int32_t code, const char* field, int64_t value) {
  char text[32];
  snprintf(text, sizeof text, "%" PRId64, value);
  return write_message(at, code, field, text);
}

int32_t sramtile_fail_real(const struct sramtile_fault* at, int32_t code, const char* field, double value) {
  char text[64];
  snprintf(text, sizeof text, "%g", value);
  return write_message(at, code, field, text);
}
