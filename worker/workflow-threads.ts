import vm from 'node:vm'

// Preloaded into the worker's threads (node --import). The SDK gives each step into its sandbox a time limit, for
// which Node starts a thread: 0.2 ms of processor time, some forty times an operation. The limit is against
// endless loops in code that is not trusted; ours is, and Temporal notices a workflow that does not answer.

// oxlint-disable-next-line typescript/unbound-method -- called with its `this` below
const { runInContext } = vm.Script.prototype
vm.Script.prototype.runInContext = function (context, options) {
  const unlimited = { ...options }
  delete unlimited.timeout
  return runInContext.call(this, context, unlimited)
}
