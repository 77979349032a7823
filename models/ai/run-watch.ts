import { EndWatch } from '../end-watch.ts'
import { AiRun, type AiRunDocument } from './runs.ts'

/** The ends of runs. */
export const runEnds = new EndWatch<AiRunDocument>(AiRun, 'run')
