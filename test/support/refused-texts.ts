import { json } from 'node:stream/consumers'
import type { InvalidInput } from '../../lib/problem.ts'
import { readCompose, renderCompose } from '../../models/deploy/compose/compose.ts'

// A program that is started with a small heap. It reads compose files, a JSON array, from its input, and writes the first fault of
// each.

const texts = (await json(process.stdin)) as string[]
const faults = texts.map((text) => {
  try {
    renderCompose(readCompose(text), () => undefined)
    return 'taken'
  } catch (error) {
    return ((error as InvalidInput).extensions['errors'] as { message: string }[])[0]?.message
  }
})
console.log(JSON.stringify(faults))
