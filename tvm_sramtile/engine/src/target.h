/* Compile the rest of the file for a processor with more than the base instructions. Include other headers before. */
#define SRAMTILE_PRAGMA_(text) _Pragma(#text)
#define SRAMTILE_PRAGMA(text) SRAMTILE_PRAGMA_(text)
#if defined(__clang__)
#define SRAMTILE_TARGET(names) \
  SRAMTILE_PRAGMA(clang attribute push(__attribute__((target(names))), apply_to = function))
#define SRAMTILE_TARGET_END SRAMTILE_PRAGMA(clang attribute pop)
#else
#define SRAMTILE_TARGET(names) SRAMTILE_PRAGMA(GCC push_options) SRAMTILE_PRAGMA(GCC target(names))
#define SRAMTILE_TARGET_END SRAMTILE_PRAGMA(GCC pop_options)
#endif
