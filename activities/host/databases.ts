import { cancellationSignal } from '@temporalio/activity'
import { ImageNotFound, ImageUnavailable, InstanceNotRunning, ServiceFailed } from '../../drivers/errors.ts'
import type { CopyImage } from '../../drivers/image-builds.ts'
import type { PullIntoMachine, TaskCommands } from '../../drivers/swarms.ts'
import { makePauses } from './pauses.ts'

interface Parts {
  copy: CopyImage
  pull: PullIntoMachine
  commands: TaskCommands
}

const longestPauseMs = 200
const answersWithinSec = 10
/** An engine that ended so often is not waited for. */
const endsAtMost = 3

/** Activities of databases, on the host of the worker that has their volumes. All are idempotent. */
export const makeDatabasesOnHost = ({ copy, pull, commands }: Parts) => ({
  /** Has the machine have the image: from this host's engine, or from its registry. Throws ImageUnavailable. */
  async provideImageOnHost(machineId: string, image: string): Promise<void> {
    const signal = cancellationSignal()
    if ((await copy(machineId, image, signal)) !== 'absent') return
    try {
      await pull(machineId, image, signal)
    } catch (error) {
      throw error instanceof ImageNotFound ? new ImageUnavailable(error) : error
    }
  },

  /** Waits until no container of the service runs on the machine. Throws ServiceFailed after `withinSec`. */
  async awaitServiceEndedOnHost(machineId: string, serviceId: string, withinSec: number): Promise<void> {
    const pause = makePauses(longestPauseMs)
    const deadline = performance.now() + withinSec * 1000
    while (await commands.runs(machineId, serviceId)) {
      if (performance.now() > deadline) throw new ServiceFailed(`It did not end within ${withinSec} s`)
      await pause()
    }
  },

  /** Waits until this command succeeds in the service's container. Throws ServiceFailed with the reason. */
  async awaitHealthyOnHost(
    machineId: string,
    serviceId: string,
    command: string,
    withinSec: number,
  ): Promise<void> {
    const signal = cancellationSignal()
    const pause = makePauses(longestPauseMs)
    const deadline = performance.now() + withinSec * 1000
    let ends = 0
    let ran = false
    let why = 'its process does not run'
    for (;;) {
      try {
        const of = { command, mark: `health-${serviceId}`, timeoutSec: answersWithinSec }
        const { exit_code, output } = await commands.run(machineId, serviceId, of, signal)
        if (exit_code === 0) return
        ran = true
        why = output.trim().split('\n').at(-1)?.slice(0, 300) || 'it does not answer'
      } catch (error) {
        if (!(error instanceof InstanceNotRunning)) throw error
        if (ran) ends++
        ran = false
      }
      if (ends >= endsAtMost)
        throw new ServiceFailed(`The database does not run: its process ended ${ends} times`)
      if (performance.now() > deadline)
        throw new ServiceFailed(`The database did not answer within ${withinSec} s: ${why}`)
      await pause()
    }
  },
})
