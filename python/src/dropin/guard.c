/* guard.c - one call of a core at a time.
 *
 *      thread A   schedule ── connector.get_num_new_matched_tokens ── ... ── end
 *      thread B                    └─ the GIL goes round here: add ──► RuntimeError
 *
 * The library is not entered twice: while it asks Python something, whoever changes the scheduler
 * from there, or from another thread that gets the GIL meanwhile, is told so. Looking is allowed.
 *
 * Where a callback raises, the library has gone on without its answer, and what the call had to say
 * is lost: tokens of other requests, a step that nobody runs. So the core is closed: better no
 * decisions than wrong ones. vLLM's engine ends at that point too.
 */
#include "vllm.h"

PyObject *vllm_guarded(PyObject *self, PyObject *args, PyCFunction call)
{
    vllm_core *core = (vllm_core *)self;
    if (core->is_closed)
        return PyErr_Format(
            PyExc_RuntimeError,
            "this scheduler is closed: an exception was raised inside one of its calls "
            "and left it half done; make a new one");
    if (core->is_busy)
        return PyErr_Format(PyExc_RuntimeError,
                            "a call of this scheduler is under way: do not change it from its own "
                            "callbacks or from a second thread");
    core->is_busy = 1;
    Py_INCREF(self); /* a callback may drop the last other reference */
    PyObject *answer = call(self, args);
    core->is_busy = 0;
    Py_DECREF(self);
    return answer;
}
