import type Docker from 'dockerode'
import { asking } from '../docker/errors.ts'
import { pullImage } from '../docker/images.ts'
import type { DialMachine, PullIntoMachine } from '../swarms.ts'
import { engineOf } from './dial.ts'

/** Has machines pull images from their registries. */
export const makePullIntoMachine =
  (dial: DialMachine): PullIntoMachine =>
  (machineId, image, signal) =>
    asking(async () => {
      await pullImage(engineOf<Docker>(dial, machineId), image, signal ? { signal } : {})
    }, signal)
