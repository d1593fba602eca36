/* Calls of the system that fail on purpose, for programs that link faults.cc or preload it. */
#ifndef TUCKFOLD_TESTS_FAULTS_H_
#define TUCKFOLD_TESTS_FAULTS_H_

#ifdef __cplusplus
extern "C" {
#endif

/* From now on the nth call of that name (open, pwrite, ftruncate, fsync, rename, fstat, mmap,
   flock) that has to do with a path or file of ours fails with that errno; "any" stands for all of
   these names, and "short" makes every pwrite write at most nth bytes. With `forever` all later ones
   fail, too. With TUCKFOLD_FAULT_KILLED for the errno the process ends there, with that status.
   NULL: none. */
#define TUCKFOLD_FAULT_KILLED 99
void tuckfold_fault(const char* call, int nth, int error, int forever);
/* How many such calls there were since. */
int tuckfold_fault_calls(void);

#ifdef __cplusplus
}
#endif
#endif
