import { text } from 'node:stream/consumers'
import Docker from 'dockerode'
import type { CopyImage } from '../image-builds.ts'
import { connection } from './connection.ts'
import { asking, unless } from './errors.ts'

/** Copies images from the engine of a host into those of its machines. Only images that the operator has named. */
export const makeImageCopies =
  (dockerHost: string, engineInside: (machineId: string) => Docker): CopyImage =>
  (machineId, image, signal) =>
    asking(async () => {
      const inside = engineInside(machineId)
      if (await unless([404], inside.getImage(image).inspect())) return 'there'
      const source = new Docker(connection(dockerHost)).getImage(image)
      if (!(await unless([404], source.inspect()))) return 'absent'
      const archive = await source.get()
      signal?.throwIfAborted()
      await text(await inside.loadImage(archive))
      return 'copied'
    }, signal)
