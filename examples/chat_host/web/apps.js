/** The apps of the conversation. */
export class Apps {
  constructor(answers) {
    this.answers = answers;
  }
  show() {}
  forget() {}
}
