#pragma once

namespace octavo::inline gpu {

/// Whether a descriptor that was just opened for a client leaves enough for the program's own work:
/// files of commits and spills, tokens and certificates that are read again. Whoever opens one for
/// as long as a client likes asks this, and closes it if not. (The kernel gives the lowest free
/// number: one near the limit says that those below are taken.)
bool LeavesDescriptors(int fd);

/// Raises the soft limit of descriptors towards the hard one, at most to `most`. A shell's 1024 is
/// for programs that call select.
void RaiseDescriptorLimit(int most);

}  // namespace octavo::inline gpu
